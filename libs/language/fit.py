"""Whether a value fits a schema: draft 2020-12, formats checked, nothing fetched from anywhere."""

from collections.abc import Mapping
from typing import Any, Final

from jsonschema import Draft202012Validator
from referencing import Registry

from contracts.base import JsonObject, JsonValue
from minutebook.models.problem import ProblemItem

PROBLEMS_MAX: Final = 50
MESSAGE_CHARS_MAX: Final = 500

# An empty registry: the validator's own would fetch a remote `$ref` from the network.
_NOTHING_REMOTE: Final[Registry[bool | Mapping[str, Any]]] = Registry()


def misfits(value: JsonValue, schema: JsonObject | None, *, root: str) -> tuple[ProblemItem, ...]:
    """Return where a value does not fit, each with its dotted path under `root`. No schema takes any object."""
    validator = Draft202012Validator(
        schema or {"type": "object"},
        registry=_NOTHING_REMOTE,
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )
    errors = sorted(validator.iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path])
    return tuple(
        ProblemItem(
            path=".".join([root, *(str(part) for part in error.absolute_path)]),
            message=error.message[:MESSAGE_CHARS_MAX],
        )
        for error in errors[:PROBLEMS_MAX]
    )

"""Whether an output fits its schema: JSON Schema 2020-12 with formats checked and nothing fetched."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

from contracts.base import JsonObject
from libs.canonical import canonical

MISFITS_SHOWN_MAX: Final = 10
MISFIT_CHARS_MAX: Final = 300
VALIDATORS_CACHED_MAX: Final = 256

# An empty registry: the validator's own would fetch a remote `$ref` from the network.
_NOTHING_REMOTE: Final[Registry[bool | Mapping[str, Any]]] = Registry()


def misfits(output: JsonObject, schema: JsonObject | None) -> str | None:
    """Say what does not fit, one `path: message` per line, paths dotted and `$` the root; None when all fits.

    No schema takes any object.
    """
    if schema is None:
        return None
    try:
        found = _validator(canonical(schema)).iter_errors(output)
        errors = sorted(found, key=lambda error: [str(part) for part in error.path])
    except Unresolvable as error:
        return f"$: the schema refers to {error.ref!r}, which it does not contain; only `#/...` is followed"
    if not errors:
        return None
    lines = [_line(error) for error in errors[:MISFITS_SHOWN_MAX]]
    if len(errors) > MISFITS_SHOWN_MAX:
        lines.append(f"... and {len(errors) - MISFITS_SHOWN_MAX} more")
    return "\n".join(lines)


@lru_cache(maxsize=VALIDATORS_CACHED_MAX)
def _validator(schema: bytes) -> Draft202012Validator:
    """What checks against a schema, which each attempt of a step brings anew."""
    return Draft202012Validator(
        json.loads(schema), registry=_NOTHING_REMOTE, format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def _line(error: ValidationError) -> str:
    message = error.message if len(error.message) <= MISFIT_CHARS_MAX else error.message[:MISFIT_CHARS_MAX] + "..."
    return f"{error.json_path.removeprefix('$.')}: {message}"

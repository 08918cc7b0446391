"""docker-compose.yml as the composer reads it: merged, and with the variables of a shell put in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "docker-compose.yml"

SET: Final = {
    "MINUTEBOOK_POSTGRES_PASSWORD": "p4ss",
    "MINUTEBOOK_NATS_TOKEN": "t0ken",
    "MINUTEBOOK_SECRETS": "./secrets",
}
"""What whoever starts it must have set."""

_VARIABLE: Final = re.compile(r"\$\{(?P<name>[A-Z_]+)(?:(?P<how>:[?-])(?P<rest>[^}]*))?\}")


class Unset(Exception):
    """A variable that must be set is not; with the file's own words."""


def composed(variables: Mapping[str, str]) -> dict[str, Any]:
    """The file with `variables` put in.

    Raises:
        Unset: one that is needed is missing.
    """
    read: dict[str, Any] = YAML(typ="safe").load(FILE.read_text())
    return {key: _filled(value, variables) for key, value in read.items()}


def services(variables: Mapping[str, str] = SET) -> dict[str, dict[str, Any]]:
    """Its services by name."""
    found: dict[str, dict[str, Any]] = composed(variables)["services"]
    return found


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, variables) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, variables) for item in value]
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _put(found, variables), value)
    return value


def _put(found: re.Match[str], variables: Mapping[str, str]) -> str:
    value = variables.get(found["name"], "")
    if value:
        return value
    if found["how"] == ":-":
        return found["rest"]
    raise Unset(found["rest"] or f"{found['name']} is not set")

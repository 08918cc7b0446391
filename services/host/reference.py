"""The settings as people read them: in the help of `serve` and in docs/configuration.md, from one source."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic.fields import FieldInfo

from libs.config import Settings
from libs.config.settings import variable

_INTRODUCTION: Final = """\
# Configuration

Every service reads its settings once, at its start, from the environment. A setting that is missing or wrong is named,
all of them at once, and the process ends with code 2; a variable that looks like a setting and is none is logged. An
empty value counts as none. Values are never printed.

This page is written by `minutebook serve --settings`.

| Variable | Default | Meaning |
|---|---|---|
"""

_REST: Final = """
## Secrets

What a definition names (`secret_ref`, `token_ref`, `url_ref`) and the model's key are looked up by that name each
time they are used: first `MINUTEBOOK_SECRET_<REF>`, the name in capitals, then the file
`<MINUTEBOOK_SECRETS_DIR>/<ref>`. That folder may be a mount of Kubernetes, a container engine's `/run/secrets`, or
what a vault's agent writes. Values are UTF-8 text of up to 64 KiB; line ends behind them are not part of them, and an
empty one counts as none. A file that is replaced counts from its next use, without a restart; what is in the
environment is as it was at the start. `<ref>_previous` is taken beside `<ref>` to check the signatures of webhooks,
so that a source can change over in its own time.

`sealing_key` is the installation's own: base64 of 32 random bytes, the same for every service. Users' grants for MCP
servers and the keys that persons' names are encrypted with are sealed under it, so no service starts without one;
`minutebook provision --sealing-key` makes it. To rotate it, give the old one as `sealing_key_previous` for as long as
something is sealed with it.

`seal_signing_key` signs seals of the history and bundles of it: an Ed25519 key as PEM, or base64 of 32 random bytes.
Only the scheduler needs it; without one no seals are made. `seal_public_keys` holds the public halves of keys that were
used before, one a line in hexadecimal or base64, or as PEM.

## The database's role

Services act as the role `minutebook_app`, which `minutebook migrate` makes and which may neither change nor delete what
is in the history. They take it whoever the DSN logs in as, so an owner's DSN gives no more rights to their statements.
It still gives them to whoever holds the DSN: a login of its own, member of that role and nothing else, is better.

    create role minutebook_services login password '...' in role minutebook_app;

A login that may not take the role acts as itself, which is logged; so does every login behind a pooler that passes no
settings on. `PGPASSWORD` keeps the password out of the DSN. `minutebook migrate` needs the owner's login.

## Traces

`OTEL_EXPORTER_OTLP_ENDPOINT` sends traces to a collector, where the package
`opentelemetry-exporter-otlp-proto-http` is installed.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `default` is empty for one that must be set."""

    variable: str
    default: str
    meaning: str
    required: bool


def rows() -> Iterator[Row]:
    """Every setting, in the order of its declaration."""
    for name, field in Settings.model_fields.items():
        required = field.is_required()
        default = "" if required or field.default is None else _plain(field.default)
        yield Row(variable(name), default, f"{field.description}{_limits(field)}", required)


def as_help() -> str:
    """The settings as paragraphs of a command's help."""
    lines = [
        f"{row.variable} ({'required' if row.required else row.default or 'none'}): {row.meaning}" for row in rows()
    ]
    return "\n\n".join(lines)


def as_markdown() -> str:
    """docs/configuration.md."""
    lines = []
    for row in rows():
        default = "**required**" if row.required else f"`{row.default}`" if row.default else "none"
        lines.append(f"| `{row.variable}` | {default} | {row.meaning} |\n".replace("\n |", " |"))
    return _INTRODUCTION + "".join(lines) + _REST


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value) if not isinstance(value, Path) else value.as_posix()


def _limits(field: FieldInfo) -> str:
    """What is allowed, where it is not everything of the type."""
    said = []
    for limit in field.metadata:
        match limit:
            case Ge(ge=least):
                said.append(f"at least {least}")
            case Gt(gt=least):
                said.append(f"more than {least}")
            case Le(le=most):
                said.append(f"at most {most}")
            case _:
                continue
    choices = _choices(field.annotation)
    if choices:
        said.append(", ".join(choices))
    return f" ({'; '.join(said)})" if said else ""


def _choices(annotation: Any) -> tuple[str, ...]:
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    if get_origin(annotation) is Union:
        return next((found for part in get_args(annotation) if (found := _choices(part))), ())
    return ()

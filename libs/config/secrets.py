"""Secrets by reference: a name in a definition, a value only in the environment or in a file.

The one port: whatever keeps secrets (a vault's agent, a Kubernetes mount, a container engine) brings them to one of the
two places. Each is looked up when it is used, so one that is rotated in its file counts from its next use on.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from contracts.errors import Unavailable

PREVIOUS: Final = "_previous"
"""Behind a ref: the secret that was there before, which is still taken while a rotation is under way."""

BYTES_MAX: Final = 64 * 1024

_REF: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}")
_NO_VARIABLE: Final = re.compile(r"[^A-Z0-9_]")


class Secrets:
    """Resolves a `secret_ref`: first `MINUTEBOOK_SECRET_<REF>`, then the file `<secrets_dir>/<ref>`.

    Line ends behind a value are not part of it, and an empty one is none: so is a file that is just being written.
    `overrides` come first: the development stack's own.
    """

    def __init__(self, directory: Path | None = None, overrides: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._overrides = dict(overrides or {})

    def __repr__(self) -> str:
        return f"Secrets({self._directory})"

    def get(self, ref: str) -> str | None:
        """Return the secret, or None when nothing holds it.

        Raises:
            contracts.errors.Unavailable: ``secret.unreadable``, its file cannot be read, or holds no text.
        """
        if ref in self._overrides:
            value: str | None = self._overrides[ref]
        elif not _REF.fullmatch(ref):
            return None
        else:
            value = os.environ.get(variable(ref)) or self._in_file(ref)
        return value.rstrip("\r\n") or None if value is not None else None

    def require(self, ref: str) -> str:
        """Return the secret.

        Raises:
            contracts.errors.Unavailable: ``secret.missing``, nothing holds it, or ``secret.unreadable``; the message
                says where it is looked for.
        """
        value = self.get(ref)
        if value is None:
            raise Unavailable(
                "secret.missing",
                f"no secret {ref!r}: set {variable(ref)} or put a file {ref!r} into MINUTEBOOK_SECRETS_DIR",
            )
        return value

    def overlapping(self, ref: str) -> tuple[str, ...]:
        """The secret, and the one before it where `<ref>_previous` holds one: what is signed with either is authentic.

        Raises:
            contracts.errors.Unavailable: as `require`.
        """
        previous = self.get(ref + PREVIOUS)
        return (self.require(ref),) if previous is None else (self.require(ref), previous)

    def _in_file(self, ref: str) -> str | None:
        """The text of a secret's file.

        It is opened once and read from what was opened: a mount may be swapped under its name at any moment, and each
        of the two contents is whole.
        """
        if self._directory is None:
            return None
        path = self._directory / ref
        try:
            with path.open("rb") as file:
                content = file.read(BYTES_MAX + 1)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise Unavailable("secret.unreadable", f"the secret {path} cannot be read: {error.strerror}") from None
        if len(content) > BYTES_MAX:
            raise Unavailable("secret.unreadable", f"the secret {path} is larger than {BYTES_MAX} bytes")
        try:
            return content.decode()
        except UnicodeDecodeError:  # whose message quotes bytes
            raise Unavailable(
                "secret.unreadable", f"the secret {path} is not UTF-8 text; a binary one is kept as base64"
            ) from None


def variable(ref: str) -> str:
    """The environment variable of a secret."""
    return f"MINUTEBOOK_SECRET_{_NO_VARIABLE.sub('_', ref.upper())}"

"""Secrets by reference: a name in a definition, a value only in the environment or in a file."""

import os
from collections.abc import Mapping
from pathlib import Path

from contracts.errors import Unavailable


class Secrets:
    """Resolves a `secret_ref`: first `MINUTEBOOK_SECRET_<REF>`, then the file `<secrets_dir>/<ref>`.

    Read at every use, so that a rotated file counts at once. `overrides` come first: the development stack's own.
    """

    def __init__(self, directory: Path | None = None, overrides: Mapping[str, str] | None = None) -> None:
        self._directory = directory
        self._overrides = dict(overrides or {})

    def get(self, ref: str) -> str | None:
        """Return the secret, or None when nothing holds it."""
        if ref in self._overrides:
            return self._overrides[ref]
        value = os.environ.get(f"MINUTEBOOK_SECRET_{ref.upper()}")
        if value is not None:
            return value
        if self._directory is not None and "/" not in ref and not ref.startswith("."):
            path = self._directory / ref
            if path.is_file():
                return path.read_text().strip()
        return None

    def require(self, ref: str) -> str:
        """Return the secret.

        Raises:
            contracts.errors.Unavailable: nothing holds it; the message says where it is looked for.
        """
        value = self.get(ref)
        if value is None:
            raise Unavailable(
                "secret.missing",
                f"no secret {ref!r}: set MINUTEBOOK_SECRET_{ref.upper()} or put a file {ref!r} into "
                "MINUTEBOOK_SECRETS_DIR",
            )
        return value

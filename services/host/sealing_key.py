"""The installation's sealing key, made once: into the folder of secrets, or shown where there is none to write to."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from contracts.errors import Rejected
from libs.config import Secrets
from libs.sealing import KEY_REF, Sealing, new_key

_SEALED: Final = """
select exists (select from grant_secrets) or exists (select from subject_keys where sealed is not null)
"""


@dataclass(frozen=True, slots=True)
class SealingKey:
    """Where the key is. `path` is the file that was written, `value` the key where no file could be written."""

    existed: bool
    path: Path | None = None
    value: str | None = None

    def __repr__(self) -> str:
        return f"SealingKey(existed={self.existed}, path={self.path}, value={'***' if self.value else None})"


async def ensure_sealing_key(secrets: Secrets, directory: Path | None, pool: asyncpg.Pool) -> SealingKey:
    """Make the key when nothing holds one.

    Raises:
        contracts.errors.Rejected: ``sealing.key_lost`` (409) when the database holds what an earlier key sealed.
        contracts.errors.Unavailable: what is there is no key; the message names the secret.
    """
    if Sealing(secrets).ready():
        return SealingKey(existed=True)
    if await pool.fetchval(_SEALED):
        raise Rejected(
            "sealing.key_lost",
            f"the database holds what an earlier sealing key sealed: give that key as {KEY_REF}; with a new one it "
            "could not be opened any more",
            status=409,
        )
    value = new_key()
    path = _written(directory, value)
    return SealingKey(existed=False, path=path, value=None if path else value)


def _written(directory: Path | None, value: str) -> Path | None:
    if directory is None:
        return None
    path = directory / KEY_REF
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError:  # a mount that is read only is how secrets mostly come: then the key is shown instead
        return None
    with os.fdopen(file, "w") as stream:
        stream.write(f"{value}\n")
    return path

"""The folder of a development stack: one run at a time, its own secrets, nobody else's files."""

import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from contracts.base import JsonObject
from contracts.errors import Rejected, Unavailable
from libs import canonical

DEFAULT_DATA_DIR = Path(".minutebook")
_MARKER = "minutebook-data-dir"
_LOCK = "lock"
_STATE = "dev.json"
_SECRETS = "secrets.json"
_FILE_BYTES_MAX = 1 << 20


class DataDir:
    """An opened data directory. Holding one means that no other run has it; closing it lets the next one in.

    The lock is the kernel's (`flock`), so a run that was killed holds nothing.
    """

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self._lock = lock

    @classmethod
    def open(cls, path: Path = DEFAULT_DATA_DIR, *, reset: bool = False) -> Self:
        """Take the folder, creating it (0700) when it is not there. `reset` empties it first.

        A folder that is not empty and that no stack made is never touched.

        Raises:
            contracts.errors.Rejected: `data_dir.in_use` (409) by another run; `data_dir.not_ours` (422) when the
                folder holds something else.
            contracts.errors.Unavailable: it cannot be created or written.
        """
        path = path.expanduser().resolve()
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _require_ours(path)
            lock = _take_lock(path)
        except OSError as error:
            raise Unavailable(
                "data_dir.unusable",
                f"{path} cannot be used: {error.strerror}. Choose another folder with --data-dir",
            ) from error
        opened = cls(path, lock)
        try:
            if reset:
                opened._empty()
            (path / _MARKER).write_text("A development stack of Minutebook keeps its files here.\n")
        except OSError as error:
            opened.close()
            raise Unavailable("data_dir.unusable", f"{path} cannot be written: {error.strerror}") from error
        return opened

    def close(self) -> None:
        """Let the folder go. Closing twice is fine."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write_state(self, state: Mapping[str, object]) -> None:
        """Keep what other commands need to find this run (addresses, pid) in `dev.json`; readers see old or new."""
        _write_private(self.path / _STATE, dict(state))

    def read_state(self) -> JsonObject:
        """Return what the last run wrote; empty when there was none."""
        return _read_private(self.path / _STATE)

    def clear_state(self) -> None:
        """Say that no run is up."""
        (self.path / _STATE).unlink(missing_ok=True)

    def secret(self, name: str) -> str:
        """Return this folder's secret of that name: made once (256 bits, URL-safe), the same after a restart."""
        kept = _read_private(self.path / _SECRETS)
        value = kept.get(name)
        if not isinstance(value, str):
            value = secrets.token_urlsafe(32)
            _write_private(self.path / _SECRETS, {**kept, name: value})
        return value

    def _empty(self) -> None:
        for entry in self.path.iterdir():
            if entry.name in {_LOCK, _MARKER}:
                continue  # the lock is held through its file; the marker keeps a half-done reset ours
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def read_state(path: Path = DEFAULT_DATA_DIR) -> JsonObject:
    """Return what the run on this folder wrote of itself, without taking the folder; empty when none is up."""
    return _read_private(path.expanduser() / _STATE)


def _require_ours(path: Path) -> None:
    if (path / _MARKER).is_file():
        return
    # Two first runs may meet here: the other one has made its lock and not yet its marker.
    if any(entry.name != _LOCK for entry in path.iterdir()):
        raise Rejected(
            "data_dir.not_ours",
            f"{path} holds files that no development stack made; it is left alone. "
            "Name an empty or a new folder with --data-dir",
        )


def _take_lock(path: Path) -> int:
    file = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(file)
        raise Rejected(
            "data_dir.in_use",
            f"{path} is in use by pid {holder}: stop it or choose another --data-dir",
            status=409,
        ) from None
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


def _write_private(path: Path, value: Mapping[str, object]) -> None:
    """Replace the file in one step, durable, readable by its owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as stream:
        stream.write(json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)


def _read_private(path: Path) -> JsonObject:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    value = canonical.parse(content, what=str(path), bytes_max=_FILE_BYTES_MAX)
    if not isinstance(value, dict):
        raise Unavailable("data_dir.damaged", f"{path} does not hold a JSON object; remove it or start with --reset")
    return value


__all__ = ["DEFAULT_DATA_DIR", "DataDir", "read_state"]

"""A disk that a test may fill: a small filesystem of its own, mounted over a server's folder."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

_CHUNKS: Final = (1 << 20, 1 << 12)
"""Bytes by which the ballast grows: first much at a time, then to the last page."""


class Disk:
    """Filled, it refuses every byte more, as any disk does; emptied, it takes them again."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Leave no room for anything. Filling it again takes what was freed meanwhile."""
        file = os.open(self._ballast, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            for size in _CHUNKS:
                _write_all(file, bytes(size))
        finally:
            os.close(file)

    def empty(self) -> None:
        """Give back all the room that filling took."""
        self._ballast.unlink(missing_ok=True)


@contextmanager
def mounted(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """Put a disk of this size under what is in a folder. Nobody may be at work there then, nor at the end.

    Skips the test where this user may not mount.
    """
    kept = folder.with_name(f"{folder.name}.kept")
    folder.mkdir(exist_ok=True)
    folder.rename(kept)
    folder.mkdir()
    mount = _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", folder)
    if mount.returncode != 0:
        folder.rmdir()
        kept.rename(folder)
        pytest.skip(f"only who may mount a small disk can fill one: {mount.stderr.strip() or 'mount failed'}")
    try:
        _run("cp", "-a", f"{kept}/.", folder).check_returncode()
        yield Disk(folder)
    finally:
        _run("umount", "--lazy", folder).check_returncode()
        folder.rmdir()
        kept.rename(folder)


def _write_all(file: int, chunk: bytes) -> None:
    while True:
        try:
            os.write(file, chunk)
        except OSError:
            return


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)

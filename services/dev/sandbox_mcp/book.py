"""The file in which calls are written down."""

import fcntl
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Book:
    """The file of calls. Any number of processes may add to it; a line that a kill tore was never answered."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read_to = 0
        self._count = 0

    def add(self, tool: str, arguments: dict[str, Any], meta: dict[str, Any], by: str | None) -> int:
        """Append a call and return its number, counted from 1, once it is on the disk."""
        descriptor = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "r+b") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            stream.seek(self._read_to)
            added = stream.read()
            whole = added.rfind(b"\n") + 1
            stream.truncate(self._read_to + whole)
            stream.seek(self._read_to + whole)
            number = self._count + added.count(b"\n") + 1
            at = datetime.now(UTC).isoformat()
            line = {"at": at, "tool": tool, "arguments": arguments, "meta": meta, "number": number, "by": by}
            stream.write(json.dumps(line).encode() + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
            self._read_to, self._count = stream.tell(), number
        return number

    def lines(self) -> list[dict[str, Any]]:
        try:
            content = self._file.read_bytes()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in content.splitlines(keepends=True) if line.endswith(b"\n")]

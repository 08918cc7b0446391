"""The product under measurement: embedded servers with fsync on, and each service as a process of its own."""

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import asyncpg

from services.dev.options import Options
from services.dev.people import ADMINISTRATOR
from services.dev.stack import Stack
from tests.bench.definitions import FILES
from tests.bench.http import Connection

SETTINGS: Final = {"MINUTEBOOK_RUNNER_SLOTS": "200"}
"""What is set beside the defaults; measurements may add their own."""


@dataclass(frozen=True, slots=True)
class Product:
    """A running product. `database` is for counters and for reading the record, never for what is measured."""

    url: str
    token: str
    database: asyncpg.Connection
    data: Path

    def connection(self) -> Connection:
        return Connection(self.url, self.token)

    def kill(self, service: str) -> None:
        """End a service's process as `kill -9` does; it is started again by what keeps it up."""
        os.kill(self.processes()[service]["pid"], signal.SIGKILL)

    def processes(self) -> dict[str, dict[str, int]]:
        """Each service with its `pid`, as it runs now."""
        found: dict[str, dict[str, int]] = json.loads((self.data / "dev.json").read_text())["processes"]
        return found


@asynccontextmanager
async def product(settings: Mapping[str, str] | None = None) -> AsyncIterator[Product]:
    """Start the product on a new folder; everything is stopped and deleted at the end."""
    before = dict(os.environ)
    os.environ.update(SETTINGS | dict(settings or {}))
    try:
        with TemporaryDirectory(prefix="mb-bench-") as folder:
            definitions, data = Path(folder) / "definitions", Path(folder) / "data"
            for path, text in FILES.items():
                (definitions / path).parent.mkdir(parents=True, exist_ok=True)
                (definitions / path).write_text(text)
            options = Options(data_dir=data, port=0, definitions=definitions, keep=False, processes=True)
            async with Stack(options, lambda _: None) as stack:
                database = await asyncpg.connect(stack.owner_dsn)
                try:
                    yield Product(stack.api_url, stack.tokens[ADMINISTRATOR], database, data)
                finally:
                    await database.close()
    finally:
        os.environ.clear()
        os.environ.update(before)

"""The record as commands of its operator open it: by the environment, else that of the development stack here."""

import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, TypeVar

import asyncpg

from libs import sealing
from libs.audit import signing
from libs.config import Secrets
from libs.config.settings import variable
from libs.eventstore.mapper import Mapper
from libs.postgres.migrate import check
from libs.postgres.pool import open_pool
from libs.process import loop
from libs.process.tools import mapper_on
from libs.telemetry import logs
from minutebook.cli.session import DEV_FILE, Exit, fail
from services.host.explaining import explained

T = TypeVar("T")

STATEMENT_TIMEOUT: Final = timedelta(hours=2)
"""Checks of a long history are allowed to take their time."""

_DSN: Final = variable("postgres_dsn")
_NATS: Final = variable("nats_url")


@dataclass(frozen=True, slots=True)
class Opened:
    """The record, with the secrets of the installation that it is of. `nats_url` is empty where nobody names one."""

    pool: asyncpg.Pool
    secrets: Secrets
    nats_url: str

    def mapper(self) -> Mapper:
        """How its facts are read: with the names of persons, where the installation's sealing key is there."""
        return mapper_on(self.pool, self.secrets)


def with_record(work: Callable[[Opened], Awaitable[T]]) -> T:
    """Open the record, do something with it, and end in words when that fails."""
    logs.configure("minutebook", level="error")
    dsn, nats_url, overrides = os.environ.get(_DSN, ""), os.environ.get(_NATS, ""), {}
    if not dsn and DEV_FILE.is_file():
        dev = json.loads(DEV_FILE.read_text())
        dsn, nats_url, overrides = (
            dev["postgres_dsn"],
            dev["nats_url"],
            {
                signing.KEY_REF: dev["seal_signing_key"],
                sealing.KEY_REF: dev["sealing_key"],
            },
        )
    if not dsn:
        fail(f"which database? Set {_DSN}, or run this beside `minutebook dev`", Exit.USAGE)
    folder = os.environ.get(variable("secrets_dir"))
    secrets = Secrets(Path(folder) if folder else None, overrides=overrides)

    async def opened() -> T:
        pool = await open_pool(
            dsn, application_name="minutebook operator", connections_max=2, statement_timeout=STATEMENT_TIMEOUT
        )
        try:
            await check(pool)
            return await work(Opened(pool, secrets, nats_url))
        finally:
            await pool.close()

    return explained(lambda: loop.run(opened()))

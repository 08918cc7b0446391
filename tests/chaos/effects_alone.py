"""The effects service alone in a process, told of its effects without a bus: to be killed on its write path, fast."""

import asyncio
import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from libs import faultpoints
from services.effects.app import build
from tests.chaos.forked import die_with_parent, write_to
from tests.support.effects import secrets
from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record


def begin(database: Database, url: str, effect_ids: Sequence[UUID], place: str, log: str) -> None:
    """Begin these effects, and live until somebody ends this process, or it comes by `place`."""
    die_with_parent()
    write_to(Path(log))
    os.environ[faultpoints.VARIABLE] = place
    importlib.reload(faultpoints)
    asyncio.run(_begin(database, url, effect_ids))


async def _begin(database: Database, url: str, effect_ids: Sequence[UUID]) -> None:
    bus = ListeningBus()
    async with open_record(database) as record:
        service = build(await record.tools(bus, secrets=secrets(url)))
        await service.start()
        await bus.tell("effects-history", "effect.declared", *effect_ids)
        await asyncio.Event().wait()


__all__ = ["begin"]

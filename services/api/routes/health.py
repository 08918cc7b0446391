"""Health: without a token, and without a word about what is inside."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final

from fastapi import APIRouter, Response

from minutebook.models import Health, Readiness
from services.api.door import Door, TheDoor

router: Final = APIRouter(tags=["health"])

PROBE_TIMEOUT: Final = timedelta(seconds=2)


@router.get("/healthz")
async def get_health() -> Health:
    """The process answers."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness, "description": "The database or the bus is not usable."}})
async def get_readiness(door: TheDoor, response: Response) -> Readiness:
    """The service can do its work."""
    database, bus = await asyncio.gather(_holds(_database(door)), _holds(door.tools.bus.usable()))
    if not (database and bus):
        response.status_code = 503
    return Readiness(status="ready" if database and bus else "not_ready", database=database, bus=bus)


async def _database(door: Door) -> bool:
    await door.tools.store.now()
    return True


async def _holds(probe: Awaitable[bool]) -> bool:
    """Whatever a probe fails with, it says the same: not usable."""
    try:
        async with asyncio.timeout(PROBE_TIMEOUT.total_seconds()):
            return await probe
    except Exception:
        return False

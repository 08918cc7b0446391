"""Runs at every place where one can be when something breaks, and what services say of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from tests.support.fleet import Fleet, found

SERVICES: Final = frozenset({"planner", "decision", "runner", "effects", "ingest", "scheduler", "api"})
BEFORE: Final = ("parked", "writing", "running", "queued", "created", "answered")
"""Runs by where they are when the fault strikes."""

AWAY: Final = "PostgreSQL is away, trying again"
BACK: Final = "PostgreSQL is back"

APPROVED: Final = frozenset({"writing", "answered", "decided", "lost"})

Logs = Sequence[Mapping[str, object]]


async def spread(fleet: Fleet) -> None:
    """Bring a run to every place in which one can be, the last two at the very moment of the return."""
    for key in ("parked", "writing", "answered"):
        await fleet.start(key)
    for key in ("parked", "writing", "answered"):
        await fleet.waits(key)
    fleet.target.delay_seconds = 1.5
    await fleet.approve("writing")

    async def calling() -> bool | None:
        steps = (await fleet.view("writing")).steps
        return True if steps[-1].state == "writing" else None

    await found(calling)
    await fleet.start("running", definition="slow")
    await fleet.start("queued", definition="slow")

    async def executing() -> bool | None:
        return True if any(a.state == "running" for a in (await fleet.view("running")).steps[0].attempts) else None

    await found(executing)
    await fleet.start("created")
    await fleet.approve("answered")


async def drafted(fleet: Fleet, key: str) -> None:
    """Wait until the run's draft is in the record, whether the run was told or not."""

    async def succeeded() -> bool | None:
        return True if any(a.state == "succeeded" for a in (await fleet.view(key)).steps[0].attempts) else None

    await found(succeeded)


async def finish(fleet: Fleet, *keys: str) -> None:
    """Answer what asks for it, and see everything completed and written once."""
    fleet.target.delay_seconds = 0
    for key in keys:
        if key not in APPROVED:
            await fleet.approve(key)
    await fleet.completed(*keys)
    assert fleet.written() == sorted(keys)
    verification = await fleet.verified()
    assert verification.ok, verification.differences


async def all_back(logs: Logs) -> Counter[object]:
    """Wait until every service that missed PostgreSQL has said that it is back; returns how often each missed it."""

    async def told() -> Counter[object] | None:
        away = said(logs, AWAY, "service")
        return away if away == said(logs, BACK, "service") else None

    return await found(told)


def said(logs: Logs, event: str, by: str) -> Counter[object]:
    return Counter(log[by] for log in logs if log["event"] == event)

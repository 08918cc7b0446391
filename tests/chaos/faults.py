"""What strikes, and in which order: drawn from a seed, each kind as often as it is worth."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.chaos.fleet import Fleet, Slot
from tests.support.fleet import OwnNats, OwnPostgres

PASSES_MAX: Final = 4
"""A fault point strikes at the first to this pass of its place."""

FREEZE_SECONDS: Final = 4.5
"""Longer than the leases of runners (3 s) and of the scheduler (2 s)."""

CUT_SECONDS: Final = 1.5
_CUT_EVERY_SECONDS: Final = 0.01

_APPENDING: Final = ("append.before", "append.committed", "publish.before", "publish.acked", "message.handled")
PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "planner": (*_APPENDING, "ask.handled"),
    "decision": (*_APPENDING[:4], "ask.handled"),
    "runner": (*_APPENDING[:4], "claim.taken", "attempt.executed"),
    "ingest": _APPENDING,
    "effects": (*_APPENDING, "effect.pending", "effect.called"),
    "api": ("inbound.accepted",),
    "scheduler": (),
}
"""The fault points that each service comes by in these trials."""

FROZEN: Final = frozenset({"runner", "scheduler", "effects", "planner"})
"""Services that are frozen: they hold leases, announce calls, or decide on what they have cached."""

_CUT: Final = """
select pg_terminate_backend(pid) from pg_stat_activity
where usename = 'minutebook_app' and state = 'active' and pid <> pg_backend_pid()
  and (wait_event in ('WalSync', 'WalWrite') or query like '%workflow_history%')
limit 1
"""
_CUT_ALL: Final = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'minutebook_app'"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something to do to an installation; to one process where it has a slot."""

    name: str
    strike: Callable[[], Awaitable[None]]
    slot: Slot | None = None


@dataclass
class Faults:
    """The hand that strikes. `struck` counts what was done beside killing services; the fleet knows whom it lost."""

    fleet: Fleet
    postgres: OwnPostgres
    nats: OwnNats
    random: random.Random
    struck: Counter[str] = field(default_factory=Counter)

    def plan(self) -> list[Fault]:
        """All of them, in the order of the seed."""
        planned: list[Fault] = []
        for slot in self.fleet.slots:
            planned += [Fault(f"kill {slot.service}", self._kill(slot), slot)] * 3
            planned += [
                Fault(f"{slot.service} at {place}", self._doom(slot, place), slot) for place in PLACES[slot.service]
            ]
            if slot.service in FROZEN:
                planned.append(Fault(f"freeze {slot.service}", self._freeze(slot), slot))
        planned += [Fault("kill nats-server", self.kill_nats)] * 3
        planned += [Fault("kill nats-server and lose what it stored", self.wipe_nats)] * 2
        planned += [Fault("kill PostgreSQL", self.kill_postgres)] * 3
        planned += [Fault("cut connections in mid-commit", self.cut)] * 4
        self.random.shuffle(planned)
        return planned

    async def kill_nats(self) -> None:
        self.struck["nats-server killed"] += 1
        await self.nats.kill()
        await asyncio.sleep(self.random.uniform(0, 1))
        await self.nats.start()

    async def wipe_nats(self) -> None:
        self.struck["nats-server killed, its storage lost"] += 1
        await self.nats.kill()
        self.nats.wipe()
        await self.nats.start()

    async def kill_postgres(self) -> None:
        self.struck["PostgreSQL killed"] += 1
        await self.postgres.kill()
        await asyncio.sleep(self.random.uniform(0, 1))
        await self.postgres.start()

    async def cut(self) -> None:
        """Cut connections one by one while they append, then all of them."""
        self.struck["connections cut while they append"] += 1
        loop = asyncio.get_running_loop()
        ends = loop.time() + CUT_SECONDS
        while loop.time() < ends:
            await self.fleet.ground.fetch(_CUT)
            await asyncio.sleep(_CUT_EVERY_SECONDS)
        await self.fleet.ground.fetch(_CUT_ALL)

    def _kill(self, slot: Slot) -> Callable[[], Awaitable[None]]:
        async def kill() -> None:
            self.fleet.kill(slot)

        return kill

    def _doom(self, slot: Slot, place: str) -> Callable[[], Awaitable[None]]:
        async def doom() -> None:
            self.fleet.doom(slot, f"{place}:{self.random.randint(1, PASSES_MAX)}")

        return doom

    def _freeze(self, slot: Slot) -> Callable[[], Awaitable[None]]:
        async def freeze() -> None:
            self.struck[f"{slot.service} frozen beyond its lease"] += 1
            await self.fleet.freeze(slot, seconds=FREEZE_SECONDS)

        return freeze


__all__ = ["PLACES", "Fault", "Faults"]

"""The database is restored to an earlier point, while the world remembers what was written after it."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from libs.eventstore.memory import Dump
from tests.simulation.auditor import Known
from tests.simulation.people import People

CHANCE: Final = 0.25
"""In so many of all seeds something is restored."""

AGAIN: Final = 0.3
REDELIVERED: Final = 0.5


class Restorer:
    """The administrators: they dump now and then, and restore once or twice. What they draw is drawn by nobody else."""

    def __init__(self, people: People, seed: int) -> None:
        self._people = people
        self._world = people.world
        self._random = Random(f"restores of {seed}")
        self._dumped: tuple[Dump, Known] | None = None
        self._restoring: asyncio.Task[None] | None = None

    async def restoring(self) -> None:
        """Restore what was dumped a while before, as `docs/operations.md` says. Twice is of one dump, or of another."""
        random = self._random
        if random.random() >= CHANCE:
            return
        for _ in range(1 + (random.random() < AGAIN)):
            await asyncio.sleep(random.choice((5.0, 20.0, 60.0)) * random.random())
            if self._dumped is None or random.random() < 0.5:
                await self._worst_moment(self._world.auditor.effects.unsure)
                self._dumped = self._dump()
            await asyncio.sleep(random.choice((2.0, 15.0, 60.0)) * random.random())
            await self._worst_moment(self._world.auditor.effects.at_work)
            self._restoring = self._world.apart(self._restore(*self._dumped), "a restore")
            await asyncio.wait({self._restoring})

    async def over(self) -> None:
        """Wait for the end of a restore that is under way."""
        if self._restoring is not None:
            await asyncio.wait({self._restoring})

    async def _worst_moment(self, come: Callable[[], bool]) -> None:
        """In half of all cases wait for a moment that is worse than others, though not for long."""
        tries = 120 * (self._random.random() < 0.5)
        while tries and not come():
            tries -= 1
            await asyncio.sleep(0.5 * self._random.random())

    def _dump(self) -> tuple[Dump, Known]:
        self._world.note("administrators", "dump the database")
        return self._world.store.dump(), self._world.auditor.remember()

    async def _restore(self, dump: Dump, known: Known) -> None:
        world, random = self._world, self._random
        world.note("administrators", "stop everything to restore the database")
        world.count("restore")
        world.up.clear()
        for replica in world.replicas:
            if replica.process is not None:
                replica.process.kill("for a restore")
        # What they had begun at the servers ends meanwhile; a call at the target may go on for longer.
        await asyncio.sleep(0.2 + random.choice((0.1, 5.0, 60.0)) * random.random())
        world.store.restore(dump)
        world.sync()
        for _ in range(1 + (random.random() < 0.2)):
            world.store.begin_era()
        world.broker.empty()
        lost = world.auditor.set_back(known)
        self._people.hear_of_a_restore(self._delivered_again(lost))
        world.note("administrators", f"have restored the database: era {world.store.era_number}")
        world.up.set()

    def _delivered_again(self, lost: Mapping[str, str | None]) -> list[str]:
        """Sources are asked for what was accepted in the lost time; of some it is never heard again."""
        return [external_id for external_id in lost if self._random.random() < REDELIVERED]

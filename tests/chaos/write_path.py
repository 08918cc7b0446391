"""The second trial: writes under way all the time, and the one service that makes them killed again and again.

Half of its processes die at a named place, the other half at any moment soon after they are up. The target takes a
moment for each call, so that moments within it are met.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from contracts import ids
from tests.chaos import judge
from tests.chaos.faults import PLACES
from tests.chaos.fleet import Fleet, Slot
from tests.chaos.ground import Ground
from tests.chaos.operator import settle_doubts
from tests.chaos.people import People
from tests.chaos.storm import settle
from tests.support.stack import PREFIX

WRITING: Final = ("planner", "decision", "effects", "effects", "scheduler", "api")
AT_ONCE: Final = 8
SETTLING_SECONDS: Final = 1
"""How long a writer waits for its write before it begins the next one: what a kill left pending takes minutes."""

CALL_SECONDS: Final = 0.03
LIFE_SECONDS_MAX: Final = 0.4
PASSES_MAX: Final = 4
_SAY_EVERY: Final = 25
_LOOK_SECONDS: Final = 0.02


@dataclass
class _Reaper:
    """Ends processes of the effects service until there were enough."""

    fleet: Fleet
    kills: int
    random: random.Random
    _turns: int = 0

    @property
    def done(self) -> bool:
        return len(self.fleet.deaths) >= self.kills

    def doom(self, slot: Slot) -> str:
        """How the next process of a slot is to die; nothing: at any moment."""
        if slot.service != "effects" or self.done:
            return ""
        self._turns += 1
        if self._turns % 2:
            return ""
        return f"{self.random.choice(PLACES['effects'])}:{self.random.randint(1, PASSES_MAX)}"

    async def reap(self, slot: Slot) -> None:
        while not self.done:
            if slot.up and not slot.doomed and not slot.killed:
                await asyncio.sleep(self.random.uniform(0, LIFE_SECONDS_MAX))
                self.fleet.kill(slot)
            await asyncio.sleep(_LOOK_SECONDS)


async def write_path(
    ground: Ground, fleet: Fleet, *, kills: int, seed: int, say: Callable[[str], None]
) -> judge.Findings:
    """Approve writes without pause until the effects service was killed so often, then see what became of each.

    What is in doubt then is settled by an operator, and every write must have landed once.
    """
    drawn = random.Random(seed)
    ground.target.delay_seconds = CALL_SECONDS
    reaper = _Reaper(fleet, kills, drawn)
    fleet.on_start = reaper.doom
    slots = fleet.of("effects")
    async with People(fleet, drawn) as people:
        reaping = [asyncio.create_task(reaper.reap(slot), name="reaper") for slot in slots]
        for number in range(AT_ONCE):
            people.soon(_write(people, reaper, f"WRITE-{seed}-{number}"))
        told = 0
        while not reaper.done:
            await asyncio.sleep(_LOOK_SECONDS)
            if len(fleet.deaths) >= told + _SAY_EVERY:
                told = len(fleet.deaths)
                say(f"{told} of {kills} kills, {len(people.runs)} writes approved")
        await asyncio.gather(*reaping)
        await people.finished()
        fleet.on_start = None
        for slot in slots:
            if slot.is_doomed:
                fleet.pardon(slot)
        unsettled = await settle(ground, fleet, expected=len(people.runs), say=say)
        findings = await judge.judge(ground, fleet, people)
        findings.violated(unsettled)
        await settle_doubts(ground, fleet, findings, expected=len(people.runs), say=say)
    return findings


async def _write(people: People, reaper: _Reaper, name: str) -> None:
    """One run after the other, each approved; the next one begins when the write has had its chance."""
    number = 0
    while not reaper.done:
        number += 1
        await approve(people, f"{name}-{number}")


async def approve(people: People, key: str) -> None:
    """Start a run, approve its write, and give it a while."""
    run_id = await people.start("writes", {"key": key}, key=key)
    await people.decide(ids.decision(run_id, "approval", 1), "approve", by="lena@example.com", missing=True)
    await people.send("GET", f"{PREFIX}/runs/{run_id}", by="lena@example.com", params={"wait": SETTLING_SECONDS})


__all__ = ["WRITING", "approve", "write_path"]

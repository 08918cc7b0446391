"""The first trial: stories on their way to pull requests, while everything that can be killed is killed."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from libs.domain.effect import OVERDUE_AFTER
from tests.chaos import judge
from tests.chaos.faults import Faults
from tests.chaos.fleet import Fleet
from tests.chaos.ground import Ground
from tests.chaos.people import People
from tests.support.fleet import OwnNats, OwnPostgres

SERVICES: Final = (
    "planner",
    "decision",
    "runner",
    "runner",
    "effects",
    "effects",
    "ingest",
    "scheduler",
    "scheduler",
    "api",
)
"""Two of those that hold leases or calls: what one of them drops, the other takes up."""

BETWEEN_SECONDS: Final = 1.0
SETTLE_SECONDS_MAX: Final = 300.0
QUIET_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5
_WAITING: Final = frozenset({"run running", "effect pending"})
"""All that may be left while nobody knows what became of a call."""

Say = Callable[[str], None]


async def storm(
    ground: Ground, fleet: Fleet, postgres: OwnPostgres, nats: OwnNats, *, runs: int, seed: int, say: Say
) -> tuple[judge.Findings, Faults]:
    """Strike with everything once or more, in an order that the seed draws, until all runs have ended."""
    drawn = random.Random(seed)
    faults = Faults(fleet, postgres, nats, drawn)
    plan = faults.plan()
    async with People(fleet, drawn, patience=len(plan) * BETWEEN_SECONDS / 4) as people:
        people.soon(people.answer_stories())
        for number in range(runs):
            people.soon(_story(people, f"STORM-{seed}-{number}", after=drawn.uniform(0, people.patience)))
        for number, (what, how) in enumerate(plan, start=1):
            await asyncio.sleep(drawn.uniform(0, 2 * BETWEEN_SECONDS))
            await how()
            if number % 10 == 0:
                left = await judge.still_open(ground, expected=runs)
                say(f"{number} of {len(plan)} faults, last: {what}; open: {left}")
        for slot in fleet.slots:
            if slot.doomed or slot.doom_next:
                faults.struck["never came by the place where it was to die"] += 1
                slot.doom_next = ""
                fleet.kill(slot, "to be doomed no more")
        people.patience = 0
        await settle(ground, fleet, expected=runs, say=say)
        return await judge.judge(ground, fleet, people), faults


async def _story(people: People, key: str, *, after: float) -> None:
    await asyncio.sleep(after)
    await people.deliver(key)


async def settle(ground: Ground, fleet: Fleet, *, expected: int, say: Say) -> None:
    """Wait until nothing is open, then let the time pass after which a call that nobody reported is in doubt."""
    await fleet.all_up()
    if await _until(ground, lambda left: left <= _WAITING, expected=expected, say=say):
        await ground.shift(OVERDUE_AFTER + timedelta(seconds=1))
        await _until(ground, lambda left: not left, expected=expected, say=say)


async def _until(ground: Ground, fits: Callable[[frozenset[str]], bool], *, expected: int, say: Say) -> dict[str, int]:
    """Wait until what is open fits and has stayed the same for a while: a call may take a moment to be reported."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(SETTLE_SECONDS_MAX):
        since = loop.time()
        before: dict[str, int] | None = None
        while True:
            left = await judge.still_open(ground, expected=expected)
            if left != before:
                since, before = loop.time(), left
                say(f"open: {left}")
            if fits(frozenset(left)) and (not left or loop.time() - since > QUIET_SECONDS):
                return left
            await asyncio.sleep(_LOOK_SECONDS)


__all__ = ["SERVICES", "settle", "storm"]

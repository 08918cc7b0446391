"""The first trial: stories on their way to pull requests, while everything that can be killed is killed."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from tests.chaos import judge
from tests.chaos.faults import Fault, Faults
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
FAULT_SECONDS: Final = 1.6
"""How long a fault takes on average, with the pause before it: stories are paced to last as long as faults do."""

LAST_SECONDS_MAX: Final = 30.0
SETTLE_SECONDS_MAX: Final = 300.0
QUIET_SECONDS: Final = 3.0
SAY_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.5

A_WHILE: Final = timedelta(seconds=61)
"""Longer than every watchdog; some of it is longer than a call that nobody reports is waited for."""

Say = Callable[[str], None]


async def storm(
    ground: Ground, fleet: Fleet, postgres: OwnPostgres, nats: OwnNats, *, runs: int, seed: int, say: Say
) -> tuple[judge.Findings, Faults]:
    """Strike with everything once or more, in an order that the seed draws, until all runs have ended."""
    drawn = random.Random(seed)
    faults = Faults(fleet, postgres, nats, drawn)
    plan = faults.plan()
    seconds = len(plan) * FAULT_SECONDS
    async with People(fleet, drawn, patience=seconds * 0.35) as people:
        people.soon(people.answer_stories())
        for number in range(runs):
            people.soon(_story(people, f"STORM-{seed}-{number}", after=drawn.uniform(0, seconds * 0.25)))
        await _strike(ground, faults, plan, runs=runs, say=say)
        people.patience = 0
        unsettled = await settle(ground, fleet, expected=runs, say=say)
        findings = await judge.judge(ground, fleet, people)
    findings.violated(unsettled)
    return findings, faults


async def _strike(ground: Ground, faults: Faults, plan: list[Fault], *, runs: int, say: Say) -> None:
    """Strike one after the other. A process that is to die at a place is spared until it has come by there."""
    left = list(plan)
    while left:
        fault = next((fault for fault in left if fault.slot is None or not fault.slot.is_doomed), None)
        if fault is None:
            await _last_words(faults)
            continue
        left.remove(fault)
        await asyncio.sleep(faults.random.uniform(0, 2 * BETWEEN_SECONDS))
        await fault.strike()
        if (struck := len(plan) - len(left)) % 10 == 0:
            still = await judge.still_open(ground, expected=runs)
            say(f"{struck} of {len(plan)} faults, last: {fault.name}; open: {still}")
    await _last_words(faults)


async def _last_words(faults: Faults) -> None:
    """Wait for those who are to die at a place, and let go on without it who does not come by."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + LAST_SECONDS_MAX
    while doomed := [slot for slot in faults.fleet.slots if slot.is_doomed]:
        if loop.time() > ends:
            for slot in doomed:
                faults.struck["never came by the place where it was to die"] += 1
                faults.fleet.pardon(slot)
        await asyncio.sleep(_LOOK_SECONDS)


async def _story(people: People, key: str, *, after: float) -> None:
    await asyncio.sleep(after)
    await people.deliver(key)


async def settle(
    ground: Ground, fleet: Fleet, *, expected: int, say: Say, quiet_seconds: float = QUIET_SECONDS
) -> list[str]:
    """Wait until nothing is open. Where nothing moves any more time passes at once, until watchdogs and doubts are due.

    Returns what stays open all the same.
    """
    await fleet.all_up()
    loop = asyncio.get_running_loop()
    began = said = since = loop.time()
    before: dict[str, int] | None = None
    while left := await judge.still_open(ground, expected=expected):
        now = loop.time()
        if left != before:
            since, before = now, left
        if now - since > quiet_seconds:
            await ground.shift(A_WHILE)
            since = now
        if now - said > SAY_SECONDS:
            said = now
            say(f"open: {left}")
        if now - began > SETTLE_SECONDS_MAX:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    return [f"still open after {SETTLE_SECONDS_MAX:g} s: {what}, {count}" for what, count in left.items()]


__all__ = ["SERVICES", "settle", "storm"]

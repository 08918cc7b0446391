"""Whoever operates the installation: settles what is in doubt, by what the target's own record shows."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from minutebook.client import ApiError, Client
from minutebook.models.states import SettleVerdict
from services.dev.people import ADMINISTRATOR
from tests.chaos.fleet import Fleet
from tests.chaos.ground import Ground
from tests.chaos.judge import Findings
from tests.chaos.storm import settle

CALLS_OVER: Final = timedelta(minutes=5)
"""After it no call that was announced can be under way any more, so the target's record is the last word."""

AGAIN_SECONDS: Final = 0.5
AT_ONCE: Final = 8

_EFFECTS: Final = """
select stream_id, run_id, key || case kind when 'write' then '' else ':' || kind end as key, state from effect_heads
"""
_SETTLED_BY_PROBE: Final = frozenset({"effect.settled", "effect.not_in_doubt", "effect.under_way", "effect.stale"})
_UNDONE: Final = "select stream_id, state, reason from run_heads where state <> 'completed'"


async def settle_doubts(
    ground: Ground, fleet: Fleet, findings: Findings, *, expected: int, say: Callable[[str], None]
) -> None:
    """Give a verdict on all that is in doubt, over HTTP, and see that every approved write landed exactly once."""
    await ground.shift(CALLS_OVER)
    doubted = [row for row in await ground.fetch(_EFFECTS) if row["state"] == "in_doubt"]
    places = asyncio.Semaphore(AT_ONCE)
    async with Client(fleet.url, ground.tokens[ADMINISTRATOR]) as client:

        async def give(row: Any) -> None:
            async with places:
                arm = (await client.effect(row["stream_id"])).arm  # before its record is read: of that call it tells
                verdict: SettleVerdict = "landed" if _written(ground)[_key(row)] else "try_again"
                findings.counts[f"verdicts {verdict}"] += 1
                await _give(client, row["stream_id"], verdict, arm=arm)

        await asyncio.gather(*(give(row) for row in doubted))
    say(f"{len(doubted)} writes in doubt were settled")
    findings.violated(await settle(ground, fleet, expected=expected, say=say))
    findings.violated(_all_landed(await ground.fetch(_EFFECTS), _written(ground)))
    findings.violated(
        f"run {row['stream_id']} is {row['state']} after its write was settled: {row['reason']}"
        for row in await ground.fetch(_UNDONE)
    )


async def _give(client: Client, effect_id: UUID, verdict: SettleVerdict, *, arm: int) -> None:
    """Send a verdict, and again while the api has not seen yet how late it is. The target's own word may be first."""
    while True:
        try:
            await client.settle_effect(effect_id, verdict, arm=arm, idempotency_key=f"{effect_id}")
        except ApiError as error:
            if error.problem.code in _SETTLED_BY_PROBE:
                return
            if error.problem.status != 503:
                raise
            await asyncio.sleep(AGAIN_SECONDS)
        else:
            return


def _all_landed(effects: Sequence[Any], written: Counter[str]) -> Iterable[str]:
    for row in effects:
        times = written[_key(row)]
        if (row["state"], times) != ("succeeded", 1):
            yield f"effect {_key(row)} is {row['state']} after its verdict, and was written {times} times"


def _written(ground: Ground) -> Counter[str]:
    return Counter(call["meta"]["minutebook/idempotency-key"] for call in ground.calls())


def _key(row: Any) -> str:
    return f"{row['run_id']}:{row['key']}"


__all__ = ["settle_doubts"]

"""Shows what the whole record adds up to, as gauges of the scheduler that leads.

Runs, decisions and effects are counted once, when a scheduler begins to lead. From then on each look reads only the
facts that were written since, and moves a stream from the state that it had to the one that it has. So a look costs
what happened in between: neither parked runs nor ended ones are visited again, and no index is kept for it.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import asyncpg

from contracts.errors import Unavailable
from libs.domain.lifecycle import RUN
from libs.postgres.pool import fetch, fetchrow, transaction
from libs.telemetry.logs import get_logger
from libs.telemetry.metrics import RECORD, Figures, RecordFigures
from services.scheduler.lease import Lease

EVERY: Final = timedelta(seconds=2)

STATE_AFTER: Final[Mapping[str, tuple[str, str]]] = {
    "run.created": ("run", "created"),
    "run.started": ("run", "running"),
    "run.unparked": ("run", "running"),
    "run.resumed": ("run", "running"),
    "run.parked.decision": ("run", "waiting_decision"),
    "run.parked.event": ("run", "waiting_event"),
    "run.parked.timer": ("run", "waiting_timer"),
    "run.suspended": ("run", "suspended"),
    "run.completed": ("run", "completed"),
    "run.failed": ("run", "failed"),
    "run.cancelled": ("run", "cancelled"),
    "run.superseded": ("run", "superseded"),
    "decision.opened": ("decision", "open"),
    "decision.answered": ("decision", "answered"),
    "decision.withdrawn": ("decision", "withdrawn"),
    "effect.declared": ("effect", "declared"),
    "effect.rearmed": ("effect", "declared"),
    "effect.pending": ("effect", "pending"),
    "effect.succeeded": ("effect", "succeeded"),
    "effect.failed": ("effect", "failed"),
    "effect.in_doubt": ("effect", "in_doubt"),
    "effect.settled.landed": ("effect", "succeeded"),
    "effect.settled.not_landed": ("effect", "failed"),
    "effect.settled.try_again": ("effect", "declared"),
    "effect.cancelled": ("effect", "cancelled"),
}
"""Which facts change a state, and to which, whatever the state was before.

Parking says on what it waits, and settling with which verdict.
"""

_UNKNOWN: Final = ("", "")
"""The state after a fact that only a newer release knows."""

_TYPES: Final = sorted({kind if kind.count(".") == 1 else kind.rpartition(".")[0] for kind in STATE_AFTER})
_KIND: Final = (
    "e.type || case e.type when 'run.parked' then '.' || (e.payload ->> 'on')"
    " when 'effect.settled' then '.' || (e.payload ->> 'verdict') else '' end"
)
_ENDLESS: Final = str(2**64 - 1)

_BOUND: Final = """
select (select max(era) from eras) as era, pg_snapshot_xmin(pg_current_snapshot())::text as xid"""

_HEADS: Final = """
select 'run' as category, state, count(*) as streams from run_heads group by state
union all select 'decision', state, count(*) from decision_heads group by state
union all select 'effect', state, count(*) from effect_heads group by state"""

# Of each stream that changed: by which fact its state at the lower bound came about, and by which the one it has now.
_CHANGES: Final = f"""
with changed as materialized (
  select e.stream_id, min(e.version) as first, (array_agg({_KIND} order by e.version desc))[1] as kind
    from workflow_history e
   where e.era = $1 and e.xid >= $2::text::xid8 and e.xid < $3::text::xid8 and e.type = any($4)
   group by e.stream_id)
select was.kind as was, changed.kind as became, count(*) as streams
  from changed left join lateral (
    select {_KIND} as kind from workflow_history e
     where changed.first > 1 and e.stream_id = changed.stream_id and e.version < changed.first and e.type = any($4)
     order by e.version desc limit 1) was on true
 group by 1, 2"""  # noqa: S608 - our own columns

_QUEUES: Final = """
select (select count(*) from ready) as queued, (select count(*) from dead_letters) as letters, count(*) as rows,
       coalesce(extract(epoch from minutebook_now() - min(written_at)), 0)::float8 as age
  from unpublished"""

_log = get_logger("scheduler.gauges")


@dataclass(frozen=True, slots=True)
class _Bound:
    """An end of what was counted: every fact of the era with a smaller transaction id, and no other."""

    era: int
    xid: str


class Census:
    """How many runs, decisions and effects are in which state. Later transactions wait for earlier ones to end."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._counted: _Bound | None = None
        self._streams: Counter[tuple[str, str]] = Counter()

    async def take(self) -> Mapping[tuple[str, str], int]:
        """Count on from the last time, or everything the first time and in a new era: (category, state) → streams.

        Raises:
            contracts.errors.Unavailable: the database does not answer.
        """
        bound = _bound(await fetchrow(self._pool, _BOUND))
        before = self._counted
        if before is None or before.era != bound.era:
            await self._count_all()
        else:
            changes = await fetch(self._pool, _CHANGES, bound.era, before.xid, bound.xid, _TYPES)
            self._streams.update(_difference(changes))
            self._counted = bound
        return self._streams

    async def _count_all(self) -> None:
        """Count the heads as one snapshot has them, less what transactions wrote that the bound leaves out."""
        async with transaction(self._pool, isolation="repeatable_read", readonly=True) as connection:
            bound = _bound(await connection.fetchrow(_BOUND))
            heads = await connection.fetch(_HEADS)
            beyond = await connection.fetch(_CHANGES, bound.era, bound.xid, _ENDLESS, _TYPES)
        self._streams = Counter({(row["category"], row["state"]): row["streams"] for row in heads})
        self._streams.subtract(_difference(beyond))
        self._counted = bound


class Gauges:
    """Refreshes the figures while this process leads, and hides them when it does not or cannot know them."""

    def __init__(self, pool: asyncpg.Pool, lease: Lease, *, shown: RecordFigures = RECORD) -> None:
        self._pool = pool
        self._lease = lease
        self._shown = shown
        self._census: Census | None = None

    async def keeping(self) -> None:
        """Look again and again, for ever."""
        try:
            while True:
                await self.look()
                await asyncio.sleep(EVERY.total_seconds())
        finally:
            self._shown.hide()

    async def look(self) -> None:
        """Refresh the figures once, if they are this process's to show."""
        try:
            if not await self._lease.held():
                self._census = None
                self._shown.hide()
                return
            figures = await self._read()
        except Unavailable as error:
            _log.info("figures not refreshed", code=error.code)
            self._shown.hide()
            # What was missed meanwhile may be more than one statement can read; counting anew has no such limit.
            self._census = None
            return
        self._shown.show(figures)

    async def _read(self) -> Figures:
        self._census = self._census or Census(self._pool)
        streams = await self._census.take()
        queues = await fetchrow(self._pool, _QUEUES)
        assert queues is not None, "an aggregate answers one row"
        return Figures(
            runs={state: streams.get(("run", state), 0) for state in RUN if state != "absent"},
            steps_queued=queues["queued"],
            decisions_waiting=streams.get(("decision", "open"), 0),
            effects_in_doubt=streams.get(("effect", "in_doubt"), 0),
            outbox_rows=queues["rows"],
            outbox_age_seconds=max(queues["age"], 0.0),
            dead_letters=queues["letters"],
        )


def _bound(row: asyncpg.Record | None) -> _Bound:
    assert row is not None, "one row, whatever there is"
    return _Bound(row["era"], row["xid"])


def _difference(changes: list[asyncpg.Record]) -> Counter[tuple[str, str]]:
    """What the changes add to each state and, negative, take from it."""
    difference: Counter[tuple[str, str]] = Counter()
    for row in changes:
        difference[STATE_AFTER.get(row["became"], _UNKNOWN)] += row["streams"]
        if row["was"] is not None:
            difference[STATE_AFTER.get(row["was"], _UNKNOWN)] -= row["streams"]
    return difference

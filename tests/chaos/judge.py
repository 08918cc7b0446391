"""What is looked at afterwards: the target's own record first, then the history. Nothing asks a service.

Each look returns the violations that it finds, in words that name the run.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.chaos.fleet import Death, Fleet
from tests.chaos.ground import Ground
from tests.chaos.people import People

CALL_WINDOW_SECONDS: Final = 10.0
"""From a `pending` to the report of its call, with all that may be in the way: a kill within it may leave a doubt."""

CLOCKS_SECONDS: Final = 0.5
"""The announcement is decided a little before it is committed, and a kill noted a little before it strikes."""

OUR_OWN_FAULT: Final = frozenset(
    {
        "the process failed",
        "decider failed",
        "ask failed",
        "call failed in our own code",
        "history is not the one that was cached",
    }
)
"""Log lines that no kill of anything explains."""

_OVER: Final = frozenset({"completed", "failed", "cancelled", "superseded", "suspended"})
_OPEN: Final = """
select 'run ' || state as what, count(*) as n from run_heads where state <> all($1::text[]) group by state
union all select 'effect ' || state, count(*) from effect_heads where state = any($2::text[]) group by state
union all select 'attempt ' || state, count(*) from attempt_heads where state = any($3::text[]) group by state
union all select 'run to come', $4 - count(*) from run_heads
union all select 'unpublished', count(*) from unpublished
union all select 'ready', count(*) from ready
union all select 'deliveries', count(*) from deliveries
"""
_EFFECTS: Final = """
select e.stream_id, e.run_id, e.key || case e.kind when 'write' then '' else ':' || e.kind end as key, e.state, e.kind,
  p.at as pending_at, e.wake_at
from effect_heads e left join lateral (
  select extract(epoch from (payload->>'at')::timestamptz)::float8 as at from workflow_history h
  where h.stream_id = e.stream_id and h.type = 'effect.pending' order by version desc limit 1) p on true
"""
_STEPS_DONE_TWICE: Final = """
with done as (
  select a.run_id, a.step, a.round, count(*) as times, min(h.position) as first
  from attempt_heads a join workflow_history h using (stream_id) where h.type = 'attempt.succeeded'
  group by a.run_id, a.step, a.round)
select d.run_id, d.step, d.round, d.times, count(b.position) as begun_after
from done d
left join lateral (
  select h.position from attempt_heads a join workflow_history h using (stream_id)
  where a.run_id = d.run_id and a.step = d.step and a.round = d.round and h.type = 'attempt.started'
    and h.position > d.first) b on true
group by d.run_id, d.step, d.round, d.times having d.times > 1 or count(b.position) > 0
"""
_ANSWERS: Final = """
select stream_id, payload->>'outcome' as outcome, count(*) over (partition by stream_id) as times
from workflow_history where type = 'decision.answered'
"""


@dataclass
class Findings:
    """What was counted, and what should not be."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def violated(self, found: Iterable[str]) -> None:
        self.violations += found


async def judge(ground: Ground, fleet: Fleet, people: People) -> Findings:
    """Judge everything that the people began. Call it once nothing is open and the fleet stands still."""
    findings = Findings()
    runs = await _runs(ground)
    effects = await ground.fetch(_EFFECTS)
    findings.counts.update(f"runs {row['state']}" for row in runs.values())
    findings.violated(_accepted_runs(people.runs, runs))
    findings.violated(_ends(runs, effects))
    findings.violated(_target(ground.calls(), effects, findings.counts))
    findings.violated(_doubts(effects, fleet.deaths, findings.counts))
    findings.violated(_approved(await ground.fetch(_ANSWERS), people.told, runs, effects))
    findings.violated(
        f"step {row['step']} round {row['round']} of run {row['run_id']} succeeded {row['times']} times, "
        f"and was begun {row['begun_after']} times after that"
        for row in await ground.fetch(_STEPS_DONE_TWICE)
    )
    findings.violated(people.refused)
    findings.violated(_logs(fleet))
    verification = await ground.verified()
    findings.counts.update({"streams": verification.streams, "facts": verification.events})
    findings.violated(
        f"the record does not agree: {d.kind} of {d.category} {d.stream_id}: {d.detail}"
        for d in verification.differences
    )
    return findings


async def still_open(ground: Ground, *, expected: int) -> dict[str, int]:
    """What something must still follow: runs and effects by state, attempts, and rows that somebody is to take away."""
    rows = await ground.fetch(_OPEN, sorted(_OVER), ["pending", "declared"], ["queued", "running"], expected)
    return {row["what"]: row["n"] for row in rows if row["n"] > 0}


async def _runs(ground: Ground) -> dict[UUID, Any]:
    rows = await ground.fetch("select stream_id, state, outcome, reason from run_heads")
    return {row["stream_id"]: row for row in rows}


def _accepted_runs(accepted: Mapping[UUID, str], runs: Mapping[UUID, Any]) -> Iterable[str]:
    """What was accepted is there, and nothing else is."""
    yield from (f"run {i} of {key} was accepted and is lost" for i, key in accepted.items() if i not in runs)
    yield from (f"run {i} is of nobody's making" for i in runs if i not in accepted)


def _ends(runs: Mapping[UUID, Any], effects: Sequence[Any]) -> Iterable[str]:
    """Every run is completed, or suspended because its write is in doubt."""
    doubted = {effect["run_id"] for effect in effects if (effect["state"], effect["kind"]) == ("in_doubt", "write")}
    for run_id, run in runs.items():
        good = run["state"] == "completed" and run["outcome"] == "succeeded" and run_id not in doubted
        if not good and not (run["state"] == "suspended" and run_id in doubted):
            yield f"run {run_id} is {run['state']} ({run['outcome']}): {run['reason']}"


def _target(calls: Sequence[Any], effects: Sequence[Any], counts: Counter[str]) -> Iterable[str]:
    """The target saw each key at most once, each success exactly once, and nothing that is not in the history."""
    seen = Counter(call["meta"]["minutebook/idempotency-key"] for call in calls)
    yield from (f"effect {key} was written {times} times" for key, times in seen.items() if times > 1)
    for effect in effects:
        key, state = f"{effect['run_id']}:{effect['key']}", effect["state"]
        times = seen.pop(key, 0)
        counts[f"effects {state}, {'written' if times else 'not written'}"] += 1
        if state == "succeeded" and times != 1:
            yield f"effect {key} is succeeded and was written {times} times"
        elif state not in {"succeeded", "in_doubt"}:
            yield f"effect {key} is {state} and was written {times} times"
    yield from (f"effect {key} was written and is not in the history" for key in seen)


def _doubts(effects: Sequence[Any], deaths: Collection[Death], counts: Counter[str]) -> Iterable[str]:
    """Only the end of the one that calls, while it calls, leaves a doubt."""
    killed = sorted(death.at for death in deaths if death.service == "effects")
    of_one: Counter[float] = Counter()
    for effect in effects:
        if effect["state"] == "in_doubt":
            since = effect["pending_at"]
            first = next((at for at in killed if at >= since - CLOCKS_SECONDS), None)
            if first is None or first > since + CALL_WINDOW_SECONDS:
                yield f"effect {effect['run_id']}:{effect['key']} is in doubt, and nobody was killed at its call"
            else:
                of_one[first] += 1
    counts["effects in doubt of one kill, at most"] = max(of_one.values(), default=0)


def _approved(
    answers: Sequence[Any], told: Mapping[UUID, str], runs: Mapping[UUID, Any], effects: Sequence[Any]
) -> Iterable[str]:
    """Every answer that was acknowledged stands in the history once, and each completed run has its write."""
    stand = {row["stream_id"]: row for row in answers}
    for decision_id, outcome in told.items():
        row = stand.get(decision_id)
        if row is None or row["outcome"] != outcome or row["times"] != 1:
            found = f"{row['outcome']}, {row['times']} times" if row else "missing"
            yield f"decision {decision_id} was answered {outcome}; in the history it is {found}"
    written = {effect["run_id"] for effect in effects}
    yield from (f"run {i} has no effect" for i in runs if i not in written)


def _logs(fleet: Fleet) -> Iterable[str]:
    told = Counter(
        f"{line['event']} ({line.get('service', '')}): {str(line.get('error') or line.get('exception', ''))[-600:]}"
        for line in fleet.said()
        if line.get("event") in OUR_OWN_FAULT or line.get("level") == "critical"
    )
    yield from (f"logged {times} times: {what}" for what, times in told.items())


__all__ = ["Findings", "judge", "still_open"]

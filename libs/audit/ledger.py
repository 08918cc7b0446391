"""Writes to the outside, judged by their facts alone: announced before they were made, once, and with an approval."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import asyncpg
from pydantic import ValidationError

from contracts import ids
from contracts.base import BlobRef
from contracts.events import run as e
from contracts.events.decision import DecisionAnswered
from contracts.events.effect import (
    EffectDeclared,
    EffectFailed,
    EffectPending,
    EffectRearmed,
    EffectSettled,
    EffectSucceeded,
)
from libs.audit.findings import Finding, Progress, silent
from libs.domain import decision, effect, run
from libs.eventstore.folding import Folded, read_streams
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import PostgresPeople
from libs.eventstore.port import Recorded
from libs.language.model import Bundle, Definition, ParallelStep, WriteStep
from libs.postgres.pool import transaction

PAGE: Final = 100

_IDS: Final = (
    "select stream_id from workflow_history where version = 1 and category = 'effect' and stream_id > $1"
    " order by stream_id limit $2"
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What was judged."""

    effects: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Page:
    """Some effects with the runs, decisions and definitions that they stand on, as of one moment."""

    effects: Mapping[UUID, Folded]
    runs: Mapping[UUID, Folded]
    decisions: Mapping[UUID, Folded]
    originals: Mapping[UUID, Folded]
    bundles: Mapping[BlobRef, Bundle]


async def check_ledger(pool: asyncpg.Pool, *, mapper: Mapper | None = None, progress: Progress = silent) -> Ledger:
    """Judge every effect of the history whose facts, its run's and its decision's are proven by their chains.

    Raises:
        contracts.errors.Unavailable: the database does not answer, or a fact is of a newer release.
    """
    known = mapper or Mapper(people=PostgresPeople(pool))
    last, count = UUID(int=0), 0
    findings: list[Finding] = []
    while True:
        async with transaction(pool, isolation="repeatable_read", readonly=True) as connection:
            found = [row["stream_id"] for row in await connection.fetch(_IDS, last, PAGE)]
            page = await _read(connection, found, known)
        for stream_id, folded in page.effects.items():
            if folded.broken is None:
                findings += [
                    Finding("violated", "ledger", detail, "effect", stream_id)
                    for detail in _judge(stream_id, folded.facts, page)
                ]
        if not found:
            return Ledger(count, tuple(findings))
        count += len(found)
        last = found[-1]
        progress("effects", count)


async def _read(connection: asyncpg.Connection, effect_ids: Sequence[UUID], mapper: Mapper) -> _Page:
    async def streams(category: Any, wanted: Collection[UUID | None]) -> dict[UUID, Folded]:
        return await read_streams(connection, category, sorted({i for i in wanted if i is not None}), mapper)

    effects = await streams(effect.CATEGORY, effect_ids)
    births = [event for folded in effects.values() if (event := _birth(folded.facts)) is not None]
    runs = await streams(run.CATEGORY, [event.run_id for event in births])
    states: list[run.State] = [folded.state for folded in runs.values()]
    answers = {
        recorded.event.decision_id
        for folded in runs.values()
        for recorded in folded.facts
        if isinstance(recorded.event, e.RunStepWaiting)
    }
    return _Page(
        effects,
        runs,
        await streams(decision.CATEGORY, answers),
        await streams(effect.CATEGORY, [event.of for event in births]),
        await _bundles(connection, [state.bundle for state in states if state.bundle is not None]),
    )


async def _bundles(connection: asyncpg.Connection, refs: Sequence[BlobRef]) -> dict[BlobRef, Bundle]:
    """The definitions that runs are pinned to. One that cannot be read says nothing."""
    by_digest = {bytes.fromhex(ref.digest): ref for ref in refs}
    rows = await connection.fetch(
        "select distinct on (digest) digest, content from blobs where digest = any($1)", list(by_digest)
    )
    bundles = {}
    for row in rows:
        try:
            bundles[by_digest[row["digest"]]] = Bundle.model_validate_json(row["content"])
        except ValidationError:
            continue
    return bundles


def _judge(stream_id: UUID, facts: Sequence[Recorded], page: _Page) -> Iterator[str]:
    declared = _birth(facts)
    if declared is None:
        yield "it does not begin with its declaration"
        return
    derived = ids.effect(declared.run_id, declared.key) if declared.of is None else ids.back_link(declared.of)
    if stream_id != derived:
        yield "its id is not that of its run and key: another effect may have the same key"
    yield from _calls(facts)
    first = next((recorded for recorded in facts if isinstance(recorded.event, EffectPending)), None)
    if first is None:
        return
    if declared.of is not None:
        if not _succeeded(page.originals.get(declared.of)):
            yield "a back-link was sent, and the write that it links to did not succeed"
        return
    yield from _approvals(stream_id, declared, first, page)


def _calls(facts: Sequence[Recorded]) -> Iterator[str]:
    """Each call is announced, reported under its claim, and made anew only after it surely was not done."""
    announced: set[UUID] = set()
    under_way: UUID | None = None
    written = 0
    for recorded in facts:
        at = f"at version {recorded.version}"
        match recorded.event:
            case EffectPending(claim=claim):
                if written:
                    yield f"{at} it was sent after it had succeeded"
                if under_way is not None:
                    yield f"{at} it was sent while the call before it was not known to have failed"
                announced.add(claim)
                under_way = claim
            case EffectSucceeded(claim=claim):
                if claim not in announced:
                    yield f"{at} it succeeded under a claim that was never announced"
                written += 1
            case EffectFailed(claim=claim):
                if claim is not None and claim not in announced:
                    yield f"{at} it failed under a claim that was never announced"
                under_way = None
            case EffectSettled(verdict="landed"):
                written += 1
            case EffectSettled() | EffectRearmed():
                under_way = None
            case _:
                continue
    if written > 1:
        yield f"it succeeded {written} times"


def _approvals(stream_id: UUID, declared: EffectDeclared, first: Recorded, page: _Page) -> Iterator[str]:
    """Before it was announced its run had declared it, on an approval that a person gave."""
    folded = page.runs.get(declared.run_id)
    if folded is None:
        yield "it was sent, and its run is not in the history"
        return
    if folded.broken is not None:
        return
    state: run.State = run.CATEGORY.initial
    writing = None
    for recorded in folded.facts:
        event = recorded.event
        if isinstance(event, e.RunStepWriting) and event.effect_id == stream_id:
            writing = recorded
            break
        state = run.CATEGORY.evolve(state, event)
    if writing is None or _place(writing) > _place(first):
        yield "it was sent before its run declared it"
        return
    bundle = None if state.bundle is None else page.bundles.get(state.bundle)
    step = None if bundle is None else _write_step(bundle.of(state.variant), declared.step)
    if step is None:
        yield f"the definition that its run is pinned to has no write step {declared.step}"
        return
    record = state.step(step.requires_decision)
    if record.outcome != "approve":
        yield f"it was sent without the approval of {step.requires_decision}"
    elif record.open_id is not None and not _approved(page.decisions.get(record.open_id), first):
        yield f"its run says that {step.requires_decision} was approved, and that decision does not"


def _birth(facts: Sequence[Recorded]) -> EffectDeclared | None:
    first = facts[0].event if facts else None
    return first if isinstance(first, EffectDeclared) else None


def _write_step(definition: Definition, key: str) -> WriteStep | None:
    """The write step that a key of a run's record stands for: a step, a branch, or an item of either."""
    top, _, rest = key.partition(".")
    for stage in definition.stages:
        for step in stage.steps:
            if step.key != top:
                continue
            branches = step.parallel if isinstance(step, ParallelStep) else ()
            chosen = next((branch for branch in branches if branch.key == rest), step)
            return chosen if isinstance(chosen, WriteStep) else None
    return None


def _approved(folded: Folded | None, first: Recorded) -> bool:
    """Whether the decision was approved before the call; one whose chain is broken is found by others."""
    if folded is None or folded.broken is not None:
        return folded is not None
    return any(
        isinstance(recorded.event, DecisionAnswered)
        and recorded.event.outcome == "approve"
        and _place(recorded) < _place(first)
        for recorded in folded.facts
    )


def _succeeded(folded: Folded | None) -> bool:
    return folded is not None and folded.state.status == "succeeded"


def _place(recorded: Recorded) -> tuple[int, int, int]:
    return recorded.era, recorded.xid, recorded.position

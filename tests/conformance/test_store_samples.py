"""Small categories on the real events, and what the store's tests write with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from contracts.base import Actor, BlobRef, Event, Metadata
from contracts.events.attempt import AttemptQueued, AttemptStarted, AttemptSucceeded, Usage
from contracts.events.effect import EffectDeclared, EffectPending
from contracts.events.inbound import InboundReceived
from contracts.events.run import (
    RunCancelled,
    RunCreated,
    RunResumed,
    RunStageEntered,
    RunStarted,
    RunSuspended,
    Trigger,
    UserRef,
)
from libs.domain.core import Category, never, no_run
from libs.eventstore.port import Append, BirthRow, Loaded
from libs.ids import mint

AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
GROUP, TENANT, OWNER = mint(), mint(), UserRef(id=mint(), email="dev@example.com")
SYSTEM = Actor(kind="system", name="tests")
BLOB = BlobRef(digest="0" * 64, bytes=2)


@dataclass(frozen=True, slots=True)
class Sample:
    """A state that is the head's `state` and its columns: enough to compare a fold with a head row."""

    status: str = "absent"
    columns: Mapping[str, Any] = field(default_factory=dict)
    wake_at: datetime | None = None


def _evolve(state: Sample, event: Event) -> Sample:
    match event:
        case RunCreated():
            return Sample("created", run_columns(event))
        case RunStarted() | RunResumed():
            return replace(state, status="running")
        case RunStageEntered():
            return replace(state, columns={**state.columns, "stage": event.stage})
        case RunSuspended():
            return replace(state, status="suspended")
        case RunCancelled():
            return replace(state, status="cancelled", columns={**state.columns, "finished_at": event.at})
        case AttemptQueued():
            return Sample("queued", attempt_columns(event))
        case AttemptStarted():
            return replace(state, status="running")
        case AttemptSucceeded():
            cost = {"cost_microdollars": event.cost_microdollars}
            return replace(state, status="succeeded", columns={**state.columns, **cost})
        case EffectDeclared():
            return Sample("declared", effect_columns(event))
        case EffectPending():
            return replace(state, status="pending")
        case InboundReceived():
            return Sample("received", inbound_columns(event))
    return state


def sample(name: str) -> Category[Sample]:
    return Category(
        name=name,
        initial=Sample(),
        evolve=_evolve,
        status=lambda state: state.status,
        columns=lambda state: state.columns,
        wake_at=never,
        run_id=no_run,
        terminal=frozenset({"cancelled", "succeeded"}),
    )


CATEGORIES: Mapping[str, Category[Any]] = {name: sample(name) for name in ("run", "attempt", "effect", "inbound")}


def run_columns(event: RunCreated) -> dict[str, Any]:
    return {
        "definition_id": event.definition_id,
        "hash": event.hash,
        "initiator": event.initiated_by.id,
        "project_id": event.project_id,
        "stage": None,
        "outcome": None,
        "reason": None,
        "created_at": event.at,
        "finished_at": None,
        "cost_microdollars": 0,
        "variant": event.variant,
        "parent": event.parent,
        "search": [],
        "tasks": 0,
    }


def attempt_columns(event: AttemptQueued) -> dict[str, Any]:
    return {
        "run_id": event.run_id,
        "step": event.step,
        "round": event.round,
        "number": event.number,
        "cost_microdollars": 0,
        "failure_class": None,
    }


def effect_columns(event: EffectDeclared) -> dict[str, Any]:
    names = ("run_id", "step", "key", "system", "tool", "kind")
    return {"reference": None} | {name: getattr(event, name) for name in names}


def inbound_columns(event: InboundReceived) -> dict[str, Any]:
    names = ("source", "external_id", "event", "body_sha256")
    return {"received_at": event.at, "unmatched": None} | {name: getattr(event, name) for name in names}


def created(**changes: Any) -> RunCreated:
    fields = {
        "at": AT,
        "definition_id": "trial",
        "hash": "1" * 64,
        "bundle": BLOB,
        "context": {"ticket": "ABC-1"},
        "initiated_by": OWNER,
        "trigger": Trigger(kind="manual"),
    }
    return RunCreated.model_validate(fields | changes)


def queued(run: UUID, *, number: int = 1) -> AttemptQueued:
    return AttemptQueued(
        at=AT, run_id=run, step="build", round=1, number=number, executor="echo", queue="default", request=BLOB
    )


def declared(run: UUID) -> EffectDeclared:
    return EffectDeclared(
        at=AT, run_id=run, step="write", key="k", system="git", tool="create", arguments=BLOB, owner=OWNER
    )


def succeeded(claim: UUID) -> AttemptSucceeded:
    return AttemptSucceeded(at=AT, claim=claim, output=BLOB, usage=Usage(), cost_microdollars=70, model=None, turns=1)


def stage(name: str) -> RunStageEntered:
    return RunStageEntered(at=AT, stage=name)


def started() -> RunStarted:
    return RunStarted(at=AT)


def cancelled() -> RunCancelled:
    return RunCancelled(at=AT, reason="enough")


def metadata(stream_id: UUID, *, group: UUID = GROUP) -> Metadata:
    return Metadata(tenant_group=group, tenant=TENANT, actor=SYSTEM, correlation=stream_id, causation=mint())


def append(category: str, before: Loaded | UUID, *events: Event, **changes: Any) -> Append:
    """An append to a stream as it was loaded, or to a new one by its id."""
    if isinstance(before, UUID):
        before = Loaded(before, 0, b"", None, None, None, ())
    state = CATEGORIES[category].fold((*(r.event for r in before.events), *events))
    group = changes.pop("group", before.tenant_group or GROUP)
    fields: dict[str, Any] = {
        "stream_id": before.stream_id,
        "version": before.version,
        "digest": before.digest,
        "events": events,
        "metadata": metadata(before.stream_id, group=group),
        "state": state.status,
        "columns": state.columns,
        "wake_at": None,
    }
    return Append(**(fields | changes))


def birth(category: str, stream_id: UUID, event: Event, **changes: Any) -> BirthRow:
    state = CATEGORIES[category].fold((event,))
    fields: dict[str, Any] = {
        "category": category,
        "stream_id": stream_id,
        "event": event,
        "state": state.status,
        "columns": state.columns,
        "wake_at": None,
    }
    return BirthRow(**(fields | changes))


LEASE = timedelta(seconds=90)


def test_samples_fold_to_what_their_births_say() -> None:
    run = mint()
    assert birth("attempt", mint(), queued(run)).columns["run_id"] == run
    assert append("run", run, created(), started()).state == "running"

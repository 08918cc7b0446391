"""Given facts, when a command, then facts: webhook deliveries."""

from datetime import UTC, datetime
from uuid import uuid4

from contracts import ids
from contracts.base import JsonObject
from contracts.events.inbound import InboundReceived, InboundRouted, SkippedTrigger, StartedRun
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING
from libs.domain.inbound import CATEGORY, Record, Start, State, decide, trigger_key

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
GROUP = uuid4()
KEYS: JsonObject = {"jira_key": "CORE-7"}
START = Start(
    run_id=ids.triggered_run(GROUP, "core-dev", trigger_key("jira", "17")),
    definition_id="core-dev",
    hash="0" * 64,
    bundle=blob({})[0],
    initiated_by=UserRef(id=uuid4(), email="workflows@example.com"),
    project_id="core",
)
RECORD = Record(
    inbound_id=ids.inbound("jira", "17"),
    source="jira",
    external_id="17",
    event="issue_transitioned",
    keys=KEYS,
    payload=blob({"issue": 7})[0],
    body_sha256="1" * 64,
    starts=(START,),
    skipped=(SkippedTrigger(definition_id="pmo", reason="no active user"),),
)


def test_a_delivery_is_recorded_with_the_runs_that_it_starts() -> None:
    decided = decide(RECORD, State(), NOW)
    received, routed = decided.events
    assert isinstance(received, InboundReceived)
    assert routed == InboundRouted(
        at=NOW,
        started=(StartedRun(definition_id="core-dev", run_id=START.run_id),),
        skipped=RECORD.skipped,
    )
    (birth,) = decided.births
    assert (birth.category, birth.stream_id) == ("run", START.run_id)
    assert isinstance(birth.event, RunCreated)
    assert birth.event.context == KEYS
    assert birth.event.trigger == Trigger(kind="event", key="jira:17", source="jira", inbound_id=RECORD.inbound_id)


def test_a_delivery_is_recorded_once() -> None:
    first = decide(RECORD, State(), NOW)
    assert decide(RECORD, CATEGORY.fold(first.events), NOW) == NOTHING


def test_every_edge_is_in_the_table() -> None:
    state = State()
    for event in decide(RECORD, state, NOW).events:
        after = CATEGORY.evolve(state, event)
        assert after.status in lifecycle.INBOUND[state.status]
        state = after
    assert CATEGORY.wake_at(state, NOW) is None

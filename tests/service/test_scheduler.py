"""The scheduler against a real record: what is due is sent, what was not published is, and one replica leads."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Event
from contracts.envelope import Doorbell, Envelope, Wake
from contracts.events.attempt import AttemptFailed, AttemptQueued, Usage
from contracts.events.effect import EffectDeclared
from contracts.events.run import RunCreated, Trigger, UserRef
from libs.bus.port import Message
from libs.canonical import blob
from libs.domain import attempt, effect, run
from libs.eventstore.port import Delivery
from services.scheduler.app import build
from services.scheduler.deliveries import Deliveries
from services.scheduler.lease import Lease
from services.scheduler.recent import Recent
from services.scheduler.sweep import Sweep
from services.scheduler.wakes import OWNERS, PAGE, Wakes
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, eventually, open_record

AGE = timedelta(seconds=5)
REF, CONTENT = blob({})


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


async def declared(record: Record) -> EffectDeclared:
    return EffectDeclared(
        at=await record.store.now(),
        run_id=uuid4(),
        step="open_pr",
        key="pull_request",
        system="github",
        tool="create_pull_request",
        arguments=REF,
        owner=UserRef(id=uuid4(), email="sam@example.com"),
    )


def woken(messages: list[Message]) -> list[UUID]:
    return [i for m in messages if m.subject == "wake.effects" for i in Wake.model_validate_json(m.data).stream_ids]


async def test_every_category_with_a_listening_owner_is_watched() -> None:
    assert OWNERS == {
        "definition": "planner",
        "run": "planner",
        "attempt": "runner",
        "decision": "decision",
        "inbound": "ingest",
        "wait": "ingest",
        "effect": "effects",
        "notice": "effects",
        "schedule": "scheduler",
        "admission": "scheduler",
    }


async def test_what_is_due_is_sent_to_its_owner_and_not_again_at_once(record: Record) -> None:
    bus, effect_id = ListeningBus(), uuid4()
    wakes = Wakes(record.store, bus)
    await record.plant(effect.CATEGORY, effect_id, await declared(record))
    await wakes.send()
    assert bus.published == []
    await record.shift(effect.DECLARED_WATCHDOG)
    await wakes.send()
    await wakes.send()
    assert woken(bus.published) == [effect_id]

    now = await record.store.now()
    await record.store.move_wakes("effect", [(effect_id, 1, now - timedelta(seconds=1))])
    await wakes.send()
    assert woken(bus.published) == [effect_id, effect_id]
    assert len({message.id for message in bus.published}) == 2


async def test_more_than_a_page_is_sent_whole(record: Record) -> None:
    fact = await declared(record)
    streams: dict[UUID, tuple[Event, ...]] = {uuid4(): (fact,) for _ in range(2 * PAGE + 7)}
    await record.plant_all(effect.CATEGORY, streams)
    await record.shift(effect.DECLARED_WATCHDOG)
    bus = ListeningBus()
    await Wakes(record.store, bus).send()
    sent = woken(bus.published)
    assert len(sent) == len(streams)
    assert set(sent) == set(streams)


def test_what_was_sent_is_forgotten_after_a_while() -> None:
    now = 0.0
    recent: Recent[str] = Recent(timedelta(seconds=10), clock=lambda: now)
    recent.sent(["a"])
    now = 5.0
    recent.sent(["b"])
    assert recent.fresh(["a", "b", "c"]) == ["c"]
    now = 12.0
    assert recent.fresh(["a", "b", "c"]) == ["a", "c"]


async def test_the_sweep_publishes_what_its_writer_did_not_and_rings_for_queued_attempts(record: Record) -> None:
    queued = AttemptQueued(
        at=await record.store.now(),
        run_id=uuid4(),
        step="design",
        round=1,
        number=1,
        executor="anthropic",
        queue="default",
        request=REF,
    )
    failed = AttemptFailed(
        at=queued.at,
        claim=None,
        failure_class="timeout",
        message="late",
        usage=Usage(),
        cost_microdollars=0,
        model=None,
        turns=0,
    )
    attempts = [uuid4(), uuid4()]
    await record.plant_all(attempt.CATEGORY, dict.fromkeys(attempts, (queued, failed)))
    bus = ListeningBus()
    sweep = Sweep(record.store, bus, age=AGE)
    await sweep.publish()
    assert bus.published == []

    await record.shift(AGE)
    bus.away = True
    with pytest.raises(Exception, match=r"bus\.away"):
        await sweep.publish()
    bus.away = False
    await sweep.publish()
    facts, ring = bus.published
    assert facts.subject == "history.attempt.failed", "that it was queued is told by the bell alone"
    assert {fact.stream_id for fact in Envelope.model_validate_json(facts.data).facts} == set(attempts)
    assert (ring.subject, Doorbell.model_validate_json(ring.data).count) == ("work.anthropic.default", 2)
    assert await record.store.unpublished(older_than=timedelta(0), limit=10) == []


async def test_what_is_published_again_has_a_new_message_id(record: Record) -> None:
    created = RunCreated(
        at=await record.store.now(),
        definition_id="trial",
        hash="1" * 64,
        bundle=REF,
        context={},
        initiated_by=UserRef(id=uuid4(), email="dana@example.com"),
        trigger=Trigger(kind="manual"),
    )
    await record.plant(run.CATEGORY, uuid4(), created)
    await record.shift(AGE)
    ((token, _),) = await record.store.unpublished(older_than=AGE, limit=10)
    bus = ListeningBus()
    await Sweep(record.store, bus, age=AGE).publish()
    (message,) = bus.published
    assert message.id.startswith(f"{token.era}.{token.xid}.")
    assert message.id != f"{token.era}.{token.xid}.history.run.created.0"


async def test_a_delivery_that_ingest_did_not_record_is_sent_to_it(record: Record) -> None:
    delivery = Delivery(
        id=ids.inbound("jira", "17"),
        tenant_group=record.group,
        tenant=record.tenant,
        source="jira",
        adapter="jira",
        external_id="17",
        event="issue_transitioned",
        keys={},
        payload=REF,
        body_sha256="1" * 64,
        traceparent=None,
    )
    await record.store.accept(delivery, {REF.digest: CONTENT})
    bus = ListeningBus()
    deliveries = Deliveries(record.store, bus, age=AGE)
    await deliveries.send()
    assert bus.published == []
    await record.shift(AGE)
    await deliveries.send()
    await deliveries.send()
    (message,) = bus.published
    assert message.subject == "wake.ingest"
    assert Wake.model_validate_json(message.data) == Wake(category="inbound", stream_ids=(delivery.id,))


async def test_the_lease_passes_on_when_its_holder_dies_or_gives_it_back(record: Record) -> None:
    length = timedelta(seconds=10)
    first, second, third = (Lease(record.store, uuid4(), length=length) for _ in range(3))
    assert await first.held()
    assert not await second.held()
    await record.shift(length)
    fourth = Lease(record.store, uuid4(), length=length)
    assert await fourth.held()
    assert not await third.held()
    await fourth.release()
    assert await Lease(record.store, uuid4(), length=length).held()


async def test_of_two_schedulers_one_works_and_the_other_takes_over_when_it_stops(record: Record) -> None:
    buses = [ListeningBus(), ListeningBus()]
    services = [
        build(await record.tools(bus, scheduler_tick_seconds=0.01, scheduler_lease_seconds=0.3)) for bus in buses
    ]
    await services[0].start()

    async def led() -> bool:
        return not await record.store.hold_lease("scheduler", uuid4(), for_=timedelta(0))

    async def reaches(bus: ListeningBus) -> UUID:
        """Make an effect due and wait until this bus carries its wake."""
        effect_id = uuid4()
        await record.plant(effect.CATEGORY, effect_id, await declared(record))
        await record.store.move_wakes("effect", [(effect_id, 1, await record.store.now())])

        async def sent() -> bool:
            return effect_id in woken(bus.published)

        await eventually(sent)
        return effect_id

    await eventually(led)
    await services[1].start()
    try:
        first = await reaches(buses[0])
        assert first not in woken(buses[1].published)
        await services[0].stop()
        second = await reaches(buses[1])
        assert second not in woken(buses[0].published)
    finally:
        await services[1].stop()

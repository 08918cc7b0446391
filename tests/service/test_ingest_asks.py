"""What a person may ask of a recorded event: once, and only an administrator of its tenant group."""

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Principal
from contracts.commands import DeliverEvent, NoteDifferentBody, ReplayEvent
from contracts.errors import Rejected
from contracts.events.definition import DefinitionSynced, EventTrigger
from contracts.events.identity import UserRegistered
from contracts.events.run import RunCancelled
from contracts.replies import BodyNoted, EventRouted
from libs.domain import definition, identity, run, wait
from libs.owner import Item, Owner, Publisher
from libs.process.asks import ask
from services.ingest.waits import arrival_of
from tests.support.postgres import Database
from tests.support.waits import PAYLOAD, SOURCE, WINDOW, Waiting, waiting

RUN_AS = "workflows@example.com"


@pytest.fixture
async def world(database: Database) -> AsyncIterator[Waiting]:
    async with waiting(database) as made:
        yield made


def principal(world: Waiting, *roles: str, group: UUID | None = None) -> Principal:
    return Principal(
        kind="user",
        id=uuid4(),
        name="ada@example.com",
        tenant_group=group or world.record.group,
        tenant=world.record.tenant,
        roles=frozenset(roles or {"platform_admin"}),
    )


async def replay(
    world: Waiting, event_id: UUID, by: Principal | None = None, *, command_id: UUID | None = None
) -> EventRouted:
    command = ReplayEvent(
        command_id=command_id or uuid4(),
        deadline=await world.record.store.now() + timedelta(minutes=1),
        principal=by or principal(world),
        inbound_id=event_id,
    )
    return await ask(world.bus, command, EventRouted, timeout=timedelta(seconds=10))


async def deliver(
    world: Waiting,
    event_id: UUID,
    run_id: UUID,
    by: Principal | None = None,
    *,
    step: str = "answer",
    command_id: UUID | None = None,
) -> EventRouted:
    command = DeliverEvent(
        command_id=command_id or uuid4(),
        deadline=await world.record.store.now() + timedelta(minutes=1),
        principal=by or principal(world),
        inbound_id=event_id,
        run_id=run_id,
        step=step,
    )
    return await ask(world.bus, command, EventRouted, timeout=timedelta(seconds=10))


async def note(world: Waiting, event_id: UUID, body: str, *, group: UUID | None = None) -> BodyNoted:
    command = NoteDifferentBody(
        command_id=uuid4(),
        deadline=await world.record.store.now() + timedelta(minutes=1),
        principal=principal(world, "events", group=group),
        inbound_id=event_id,
        body_sha256=body * 64,
    )
    return await ask(world.bus, command, BodyNoted, timeout=timedelta(seconds=10))


async def declare(world: Waiting) -> None:
    """A workflow that comments start, and the user that owns its runs."""
    now = await world.record.store.now()
    user = UserRegistered(at=now, email=RUN_AS, name="Workflows", kind="service_user")
    await world.record.plant(identity.CATEGORY, ids.user(world.record.group, RUN_AS), user)
    synced = DefinitionSynced(
        at=now,
        definition_id="core-dev",
        name="Core",
        hash="0" * 64,
        bundle=PAYLOAD,
        enabled=True,
        event_triggers=(EventTrigger(source=SOURCE, match={"event": "comment_created"}, run_as=RUN_AS),),
        required_context=(),
    )
    await world.record.plant(definition.CATEGORY, ids.definition(world.record.group, "core-dev"), synced)


async def test_a_replay_starts_what_was_declared_since_and_once(world: Waiting) -> None:
    event_id = await world.event()
    await world.arrives(event_id)
    assert "no workflow is started by the source" in str((await world.routed(event_id)).unmatched)
    await declare(world)
    command_id, by = uuid4(), principal(world)
    first = await replay(world, event_id, by, command_id=command_id)
    (started,) = first.started
    begun = await world.record.state(run.CATEGORY, started.run_id)
    assert (begun.status, begun.trigger and begun.trigger.inbound_id) == ("created", event_id)
    assert await replay(world, event_id, by, command_id=command_id) == first
    again = await replay(world, event_id)
    assert (again.started, [skipped.definition_id for skipped in again.skipped]) == ((), ["core-dev"])
    assert await world.record.types("run", started.run_id) == ["run.created"]
    assert (await world.routed(event_id)).unmatched is None


async def test_a_replay_resumes_what_waits_now(world: Waiting) -> None:
    event_id = await world.event()
    await world.arrives(event_id)
    await world.record.shift(WINDOW + timedelta(seconds=1))
    wait_id = await world.waiting()
    await world.opened(wait_id)
    assert (await world.at(wait_id)).status == "open"
    routed = await replay(world, event_id)
    assert [resumed.wait_id for resumed in routed.resumed] == [wait_id]
    assert (await world.at(wait_id)).inbound_id == event_id
    again = await replay(world, event_id)
    assert (again.resumed, again.unmatched is None) == ((), False)


async def test_an_event_is_handed_to_a_step_that_asks_for_another(world: Waiting) -> None:
    wait_id = await world.waiting(jira_key="CORE-8")
    await world.opened(wait_id)
    event_id, run_id = await world.event(), await world.run_of(wait_id)
    await world.arrives(event_id)
    command_id, by = uuid4(), principal(world)
    first = await deliver(world, event_id, run_id, by, command_id=command_id)
    assert [(resumed.run_id, resumed.wait_id) for resumed in first.resumed] == [(run_id, wait_id)]
    assert await deliver(world, event_id, run_id, by, command_id=command_id) == first
    assert await world.record.types("inbound", event_id) == [
        "inbound.received",
        "inbound.routed",
        "inbound.delivered",
    ]
    state = await world.at(wait_id)
    assert (state.status, state.inbound_id) == ("matched", event_id)
    other = await world.event("18")
    await world.arrives(other)
    with pytest.raises(Rejected) as caught:
        await deliver(world, other, run_id)
    assert (caught.value.status, caught.value.code) == (409, "wait.matched")


async def test_a_delivery_by_hand_goes_on_where_it_was_killed(world: Waiting) -> None:
    """The wait took the event, and the process died before the event's own stream told so."""
    wait_id = await world.waiting(jira_key="CORE-8")
    await world.opened(wait_id)
    event_id, run_id = await world.event(), await world.run_of(wait_id)
    await world.arrives(event_id)
    command_id, by = uuid4(), principal(world)
    store = world.record.store
    owner = Owner(wait.CATEGORY, wait.decide, store=store, publisher=Publisher(world.bus, store))
    handed = wait.Deliver(arrival=arrival_of(event_id, await world.routed(event_id)), by=by.actor)
    await owner.handle([Item(stream_id=wait_id, command=handed, actor=by.actor, causation=command_id)])
    assert (await world.at(wait_id)).inbound_id == event_id
    assert await world.record.types("inbound", event_id) == ["inbound.received", "inbound.routed"]

    assert (await deliver(world, event_id, run_id, by, command_id=command_id)).resumed[0].wait_id == wait_id
    assert (await world.record.types("inbound", event_id))[-1] == "inbound.delivered"


async def test_who_may_not_and_what_is_not_there(world: Waiting) -> None:
    wait_id = await world.waiting()
    await world.opened(wait_id)
    run_id, event_id = await world.run_of(wait_id), await world.event(jira_key="CORE-9")
    await world.arrives(event_id)
    stranger = principal(world, "platform_admin", group=uuid4())
    for refused, status, code in (
        (replay(world, event_id, principal(world, "developer")), 403, "event.not_yours"),
        (deliver(world, event_id, run_id, principal(world, "developer")), 403, "event.not_yours"),
        (replay(world, event_id, stranger), 404, "event.not_found"),
        (deliver(world, event_id, run_id, stranger), 404, "event.not_found"),
        (replay(world, uuid4()), 404, "event.not_found"),
        (deliver(world, event_id, run_id, step="elsewhere"), 404, "wait.not_found"),
        (deliver(world, event_id, uuid4()), 404, "wait.not_found"),
        (note(world, event_id, "2", group=uuid4()), 404, "event.not_found"),
        (note(world, uuid4(), "2"), 404, "event.not_found"),
    ):
        with pytest.raises(Rejected) as caught:
            await refused
        assert (caught.value.status, caught.value.code) == (status, code)
    assert (await world.at(wait_id)).status == "open"
    cancelled = RunCancelled(at=await world.record.store.now(), reason="no")
    await world.record.plant(run.CATEGORY, run_id, cancelled)
    with pytest.raises(Rejected) as caught:
        await deliver(world, event_id, run_id)
    assert (caught.value.status, caught.value.code) == (409, "append.guarded")


async def test_another_body_is_noted_also_before_the_first_was_recorded(world: Waiting) -> None:
    event_id = await world.event()
    await note(world, event_id, "2")
    await note(world, event_id, "2")
    await note(world, event_id, "1")
    state = await world.routed(event_id)
    assert (state.status, state.other_bodies) == ("routed", frozenset({"2" * 64}))
    assert await world.record.types("inbound", event_id) == [
        "inbound.received",
        "inbound.routed",
        "inbound.body_differed",
    ]

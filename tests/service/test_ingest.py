"""Ingest against a real record: each delivery once, one run per definition, a reason for each that is not started."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import JsonObject
from contracts.events.definition import DefinitionSynced, EventTrigger
from contracts.events.identity import ProjectCreated, UserDeactivated, UserRegistered
from libs.bus.port import ACK
from libs.canonical import blob
from libs.domain import definition, identity, inbound, run
from libs.eventstore.port import Delivery
from services.ingest.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

RUN_AS = "workflows@example.com"
KEYS: JsonObject = {"jira_key": "CORE-7", "to": "Ready"}
PAYLOAD, PAYLOAD_BYTES = blob({"issue": {"key": "CORE-7"}})


@dataclass
class World:
    """A record with a service user and a project, and two replicas of ingest."""

    record: Record
    buses: tuple[ListeningBus, ListeningBus]

    async def sync(
        self,
        name: str,
        *,
        match: JsonObject | None = None,
        run_as: str = RUN_AS,
        project: str | None = "core",
        required: tuple[str, ...] = ("jira_key",),
        enabled: bool = True,
        group: UUID | None = None,
    ) -> None:
        """Declare a definition with one event trigger."""
        group = group or self.record.group
        bundle = await self.record.keep({"name": name}, group=group)
        wanted = {"event": "issue_transitioned", "to": "Ready"} if match is None else match
        synced = DefinitionSynced(
            at=await self.record.store.now(),
            definition_id=name,
            name=name,
            hash=bundle.digest,
            bundle=bundle,
            enabled=enabled,
            event_triggers=(EventTrigger(source="jira", match=wanted, run_as=run_as, project=project),),
            required_context=required,
        )
        await self.record.plant(definition.CATEGORY, ids.definition(group, name), synced, group=group)

    def delivery(self, external_id: str = "17") -> Delivery:
        return Delivery(
            id=ids.inbound("jira", external_id),
            tenant_group=self.record.group,
            tenant=self.record.tenant,
            source="jira",
            adapter="jira",
            external_id=external_id,
            event="issue_transitioned",
            keys=KEYS,
            payload=PAYLOAD,
            body_sha256="1" * 64,
            traceparent=None,
        )

    async def accept(self, delivery: Delivery) -> bool:
        return await self.record.store.accept(delivery, {PAYLOAD.digest: PAYLOAD_BYTES})

    async def routed(self, delivery: Delivery) -> inbound.State:
        return await self.record.state(inbound.CATEGORY, delivery.id)


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        now = await record.store.now()
        user = UserRegistered(at=now, email=RUN_AS, name="Workflows", kind="service_user")
        await record.plant(identity.CATEGORY, ids.user(record.group, RUN_AS), user)
        project = ProjectCreated(at=now, key="core", name="Core")
        await record.plant(identity.CATEGORY, ids.project(record.group, "core"), project)
        buses = (ListeningBus(), ListeningBus())
        async with exit_:
            for bus in buses:
                service = build(await record.tools(bus))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield World(record, buses)


async def test_a_delivery_is_recorded_with_the_run_that_it_starts(world: World) -> None:
    await world.sync("core-dev")
    await world.sync("other", match={"event": "issue_created"})
    await world.sync("off", enabled=False)
    delivery = world.delivery()
    assert await world.accept(delivery)
    assert await world.buses[0].notify("jira", delivery.id) == [ACK]

    state = await world.routed(delivery)
    (started,) = state.started
    assert (state.status, started.definition_id, state.skipped) == ("routed", "core-dev", ())
    begun = await world.record.state(run.CATEGORY, started.run_id)
    assert (begun.status, begun.context, begun.project_id) == ("created", KEYS, "core")
    assert begun.initiated_by is not None
    assert begun.initiated_by.id == ids.user(world.record.group, RUN_AS)
    assert await world.record.store.deliveries([delivery.id]) == []
    assert {message.subject for message in world.buses[0].published} == {"history.run.created"}


async def test_fifty_parallel_redeliveries_start_one_run(world: World) -> None:
    await world.sync("core-dev")
    delivery = world.delivery()

    async def redeliver(number: int) -> bool:
        stored = await world.accept(delivery)
        assert await world.buses[number % 2].notify("jira", delivery.id) == [ACK]
        return stored

    assert sum(await asyncio.gather(*(redeliver(number) for number in range(50)))) == 1
    (started,) = (await world.routed(delivery)).started
    assert await world.record.types("inbound", delivery.id) == ["inbound.received", "inbound.routed"]
    assert await world.record.types("run", started.run_id) == ["run.created"]
    assert not await world.accept(delivery)


async def test_every_definition_that_matches_starts_its_own_run(world: World) -> None:
    await world.sync("core-dev")
    await world.sync("release-notes", match={}, project=None)
    delivery = world.delivery()
    await world.accept(delivery)
    await world.buses[0].notify("jira", delivery.id)
    started = (await world.routed(delivery)).started
    assert [one.definition_id for one in started] == ["core-dev", "release-notes"]
    assert len({one.run_id for one in started}) == 2


async def test_what_is_not_started_is_recorded_with_its_reason(world: World) -> None:
    left = "left@example.com"
    now = await world.record.store.now()
    await world.record.plant(
        identity.CATEGORY,
        ids.user(world.record.group, left),
        UserRegistered(at=now, email=left, name="Left", kind="user"),
        UserDeactivated(at=now),
    )
    await world.sync("a-deactivated", run_as=left)
    await world.sync("b-nobody", run_as="nobody@example.com")
    await world.sync("c-incomplete", required=("jira_key", "branch", "owner"))
    await world.sync("d-homeless", project="elsewhere")
    delivery = world.delivery()
    await world.accept(delivery)
    await world.buses[0].notify("jira", delivery.id)
    state = await world.routed(delivery)
    reasons = {skipped.definition_id: skipped.reason for skipped in state.skipped}
    assert state.started == ()
    for definition_id in ("a-deactivated", "b-nobody"):
        assert reasons[definition_id] == f"no active user has the email that `run_as` of {definition_id} names"
    assert "branch, owner" in reasons["c-incomplete"]
    assert "elsewhere" in reasons["d-homeless"]


async def test_a_delivery_whose_notice_was_lost_is_found_by_its_wake(world: World) -> None:
    await world.sync("core-dev")
    delivery = world.delivery()
    await world.accept(delivery)
    await world.buses[1].wake("ingest", "inbound", delivery.id, uuid4())
    assert len((await world.routed(delivery)).started) == 1


async def test_another_groups_definition_is_not_started(world: World) -> None:
    await world.sync("theirs", group=uuid4())
    delivery = world.delivery()
    await world.accept(delivery)
    await world.buses[0].notify("jira", delivery.id)
    state = await world.routed(delivery)
    assert (state.status, state.started, state.skipped) == ("routed", (), ())


async def test_a_notice_that_cannot_be_read_harms_itself_only(world: World) -> None:
    await world.sync("core-dev")
    first, second = world.delivery("1"), replace(world.delivery("2"), event="issue_created")
    await world.accept(first)
    await world.accept(second)
    wanted = b'{"delivery_ids":["%s","%s"]}' % (str(first.id).encode(), str(second.id).encode())
    verdicts = await world.buses[0].deliver("ingest-inbound", "inbound.jira", b"{", wanted)
    assert [disposition.verdict for disposition in verdicts] == ["term", "ack"]
    assert len((await world.routed(first)).started) == 1
    assert (await world.routed(second)).status == "routed"

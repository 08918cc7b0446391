"""Nothing is lost: bells that were never rung, found by the scheduler, over a real nats-server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from contracts import ids
from contracts.base import Principal
from contracts.commands import AnswerDecision
from contracts.envelope import Address, Envelope
from contracts.events.decision import DecisionOpened
from contracts.events.effect import EffectPending
from contracts.events.run import RoleBinding
from contracts.replies import DecisionAccepted
from contracts.subjects import history
from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus
from libs.bus.port import Message
from libs.canonical import blob
from libs.domain import decision, effect, inbound
from libs.eventstore.port import Delivery
from libs.process import Service
from libs.process.asks import ask
from services.decision.app import build as build_decision
from services.effects.app import build as build_effects
from services.ingest.app import build as build_ingest
from services.scheduler.app import build as build_scheduler
from tests.support.effects import OVER_WITHIN, World, open_world, secrets
from tests.support.postgres import Database
from tests.support.record import eventually

AGE = timedelta(seconds=5)


class Stack:
    """Services on one record and one nats-server."""

    def __init__(self, world: World, url: str, exit_: AsyncExitStack) -> None:
        self.world = world
        self._url = url
        self._exit = exit_

    async def start(self, *names: str) -> None:
        builders = {
            "decision": build_decision,
            "effects": build_effects,
            "ingest": build_ingest,
            "scheduler": build_scheduler,
        }
        for name in names:
            tools = await self.world.record.tools(
                JetStreamBus(self._url, name=name), secrets=secrets(self.world.http.url), scheduler_tick_seconds=0.05
            )
            service: Service = builders[name](tools)
            await service.start()
            self._exit.push_async_callback(service.stop)

    async def bus(self) -> JetStreamBus:
        bus = JetStreamBus(self._url, name="test")
        await bus.start()
        self._exit.push_async_callback(bus.stop)
        return bus


@pytest.fixture
async def stack(database: Database, nats_url: str, tmp_path: Path) -> AsyncIterator[Stack]:
    await declare(nats_url)
    async with open_world(database, tmp_path) as world, AsyncExitStack() as exit_:
        yield Stack(world, nats_url, exit_)


async def test_an_effect_whose_envelope_was_never_published_is_written_once(stack: Stack) -> None:
    await stack.start("effects", "scheduler", "scheduler")
    effect_id = await stack.world.declare(await stack.world.run())
    await stack.world.record.shift(AGE)
    await stack.world.until(effect_id, "succeeded")

    async def swept() -> bool:
        return await stack.world.record.store.unpublished(older_than=timedelta(0), limit=10) == []

    await stack.world.record.shift(AGE)
    await eventually(swept)
    assert len(stack.world.target.calls()) == 1


async def test_a_hundred_envelopes_of_one_effect_make_one_call(stack: Stack) -> None:
    await stack.start("effects", "effects")
    bus = await stack.bus()
    effect_id = await stack.world.declare(await stack.world.run())
    address = Address(stream_id=effect_id, version=1, correlation=effect_id)
    data = Envelope(era=1, facts=(address,)).model_dump_json().encode()
    await bus.publish(
        [Message(subject=history("effect.declared"), data=data, id=f"again.{number}") for number in range(100)]
    )
    await stack.world.until(effect_id, "succeeded")
    assert len(stack.world.target.calls()) == 1
    assert (await stack.world.record.types("effect", effect_id)).count("effect.pending") == 1


async def test_an_effect_that_a_crash_left_pending_comes_to_its_doubt_by_the_clock_alone(stack: Stack) -> None:
    effect_id = await stack.world.declare(await stack.world.run())
    now = await stack.world.record.store.now()
    pending = EffectPending(at=now, claim=uuid4(), arm=0, over_at=now + OVER_WITHIN)
    await stack.world.record.plant(effect.CATEGORY, effect_id, pending)
    await stack.start("effects", "scheduler")
    await stack.world.record.shift(OVER_WITHIN)
    await stack.world.until(effect_id, "in_doubt")
    assert stack.world.target.calls() == []


async def test_a_delivery_whose_notice_was_never_published_is_recorded(stack: Stack) -> None:
    record = stack.world.record
    ref, content = blob({})
    delivery = Delivery(
        id=ids.inbound("jira", "17"),
        tenant_group=record.group,
        tenant=record.tenant,
        source="jira",
        adapter="jira",
        external_id="17",
        event="issue_transitioned",
        keys={},
        payload=ref,
        body_sha256="1" * 64,
        traceparent=None,
    )
    await record.store.accept(delivery, {ref.digest: content})
    await stack.start("ingest", "scheduler")
    await record.shift(AGE)

    async def routed() -> bool:
        return (await record.state(inbound.CATEGORY, delivery.id)).status == "routed"

    await eventually(routed)


async def test_a_decision_is_answered_over_the_bus_by_either_replica(stack: Stack) -> None:
    record = stack.world.record
    await stack.start("decision", "decision")
    bus = await stack.bus()
    run_id = await stack.world.run()
    decision_id = uuid4()
    opened = DecisionOpened(
        at=await record.store.now(),
        run_id=run_id,
        definition_id="core-dev",
        step="approval",
        title="Approval",
        round=1,
        role="lead",
        binding=RoleBinding(roles=("lead_dev",)),
        outcomes=("approve",),
        artifact_step=None,
        artifact=None,
        initiated_by=stack.world.owner,
        project_id=None,
    )
    await record.plant(decision.CATEGORY, decision_id, opened)
    principal = Principal(
        kind="user",
        id=stack.world.owner.id,
        name=stack.world.owner.email,
        tenant_group=record.group,
        tenant=record.tenant,
        roles=frozenset({"lead_dev"}),
    )
    command = AnswerDecision(
        command_id=uuid4(),
        deadline=await record.store.now() + timedelta(minutes=1),
        principal=principal,
        decision_id=decision_id,
        outcome="approve",
    )

    async def answer() -> DecisionAccepted:
        return await ask(bus, command, DecisionAccepted, timeout=timedelta(seconds=10))

    replies = await asyncio.gather(*(answer() for _ in range(10)))
    assert set(map(repr, replies)) == {
        repr(DecisionAccepted(decision_id=decision_id, run_id=run_id, outcome="approve", revised=False))
    }

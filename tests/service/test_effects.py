"""The effects service against a real record and a real MCP server: once, or in doubt, or surely not."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from contracts.errors import Unavailable
from contracts.events.effect import EffectPending
from contracts.events.identity import UserDeactivated
from contracts.events.run import (
    RunCancelled,
    RunResumed,
    RunStepWriting,
    RunSuspended,
)
from libs.domain import effect, identity, run
from libs.eventstore.eras import begin_era
from libs.eventstore.port import Append, BatchResult, HeadView, Store
from libs.eventstore.postgres import PostgresStore
from services.dev.http import serve
from services.dev.sandbox_mcp import Fault, sandbox
from services.effects.app import build
from tests.support.effects import ARGUMENTS, EMAIL, OVER_WITHIN, TOKEN, World, open_world, secrets
from tests.support.postgres import Database
from tests.support.record import ListeningBus, eventually


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def test_a_declared_effect_is_written_once_and_keeps_the_reference(world: World) -> None:
    _, bus = await world.service()
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    await bus.tell("effects-history", "effect.declared", effect_id)
    state = await world.until(effect_id, "succeeded")
    (call,) = world.target.calls()
    assert {key: call["arguments"][key] for key in ARGUMENTS} == ARGUMENTS
    assert call["meta"]["minutebook/idempotency-key"] == f"{run_id}:pull_request"
    assert call["meta"]["minutebook/run"] == str(run_id)
    assert state.reference is not None
    assert state.reference.endswith("/pull/1")
    assert state.response is not None
    assert state.response.digest in await world.record.store.blobs(world.record.group, [state.response.digest])
    assert await world.record.types("effect", effect_id) == ["effect.declared", "effect.pending", "effect.succeeded"]
    assert "history.effect.succeeded" in {message.subject for message in bus.published}


async def test_a_hundred_repeated_messages_at_two_replicas_make_one_call(world: World) -> None:
    _, first = await world.service()
    _, second = await world.service()
    effect_id = await world.declare(await world.run())
    await asyncio.gather(
        *(bus.tell("effects-history", "effect.declared", *[effect_id] * 5) for bus in [first, second] * 10)
    )
    await world.until(effect_id, "succeeded")
    await first.tell("effects-history", "effect.declared", effect_id)
    await second.wake("effects", "effect", effect_id)
    assert len(world.target.calls()) == 1
    assert (await world.record.types("effect", effect_id)).count("effect.pending") == 1


async def test_a_tool_that_fails_was_surely_not_done(world: World) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    world.target.faults.append(Fault("error"))
    await bus.tell("effects-history", "effect.declared", effect_id)
    state = await world.until(effect_id, "failed")
    assert state.failure_class == "default"
    assert state.message
    assert world.target.calls() == []


async def test_a_server_that_is_down_may_be_tried_again_and_only_once_per_arm(world: World) -> None:
    _, bus = await world.service()
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    await world.http.stop()
    await bus.tell("effects-history", "effect.declared", effect_id)
    assert (await world.until(effect_id, "failed")).failure_class == "connector_unavailable"

    port = int(world.http.url.rpartition(":")[2])
    again = await serve(sandbox(world.target.file, token=TOKEN).app, port=port)
    try:
        writing = RunStepWriting(
            at=await world.record.store.now(),
            step="open_pr",
            round=1,
            effect_id=effect_id,
            effect_key="pull_request",
            arm=1,
        )
        await world.record.plant(run.CATEGORY, run_id, writing)
        await bus.tell("effects-history", "run.step_writing", run_id, run_id, version=3)
        assert (await world.until(effect_id, "succeeded")).arm == 1
        await bus.tell("effects-history", "run.step_writing", run_id, version=3)
        assert len(world.target.calls()) == 1
    finally:
        await again.stop()


async def test_after_a_restore_an_effect_of_an_older_run_begins_in_doubt(world: World) -> None:
    """What was lost may have made the write, declared before the restore or after it. New runs write."""
    record, older = world.record, await world.run()
    declared = await world.declare(older, key="before")
    await begin_era(record.database.owner_dsn, reason="restored")
    record.store = PostgresStore(record.pool)
    planned = await world.declare(older, key="after")
    new = await world.declare(await world.run())
    _, bus = await world.service()
    await bus.tell("effects-history", "effect.declared", declared, planned, new)
    await world.until(new, "succeeded")
    for effect_id in (declared, planned):
        state = await world.until(effect_id, "in_doubt")
        assert (state.claim, state.message) == (None, effect.RESTORED)
    await bus.wake("effects", "effect", declared, planned)
    await bus.tell("effects-history", "effect.declared", declared, planned)
    (call,) = world.target.calls()
    assert call["meta"]["minutebook/run"] != str(older)
    assert await record.types("effect", declared) == ["effect.declared", "effect.in_doubt"]


@pytest.mark.parametrize("acted", [True, False], ids=["acted", "did not act"])
async def test_an_answer_that_never_came_is_in_doubt_and_never_called_again(world: World, acted: bool) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    world.target.faults.append(Fault("drop", acted=acted))
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "in_doubt")
    await bus.tell("effects-history", "effect.declared", effect_id)
    await bus.wake("effects", "effect", effect_id)
    assert len(world.target.calls()) == int(acted)
    assert (await world.record.types("effect", effect_id))[-1] == "effect.in_doubt"


async def test_what_a_crash_left_pending_is_in_doubt_once_no_call_can_be_under_way(world: World) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    now = await world.record.store.now()
    pending = EffectPending(at=now, claim=uuid4(), arm=0, over_at=now + OVER_WITHIN)
    await world.record.plant(effect.CATEGORY, effect_id, pending)
    await bus.wake("effects", "effect", effect_id)
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "pending"

    await world.record.shift(OVER_WITHIN)
    assert [due.stream_id for due in await world.record.store.due("effect", limit=10)] == [effect_id]
    await bus.wake("effects", "effect", effect_id)
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "in_doubt"
    assert world.target.calls() == []
    await bus.wake("effects", "effect", effect_id)  # no probe is declared: it costs no further wake
    assert await world.record.store.due("effect", limit=10) == []


@dataclass
class Away:
    """A store whose database went away between two queries: nothing of `events` is answered."""

    inner: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def events(self, category: str, stream_ids: Any, *, tenant_group: UUID) -> Any:
        raise Unavailable("postgres.away", "the connection was cut")


async def test_a_record_that_is_away_before_the_announcement_leaves_the_effect_declared(world: World) -> None:
    """An outage of ours is no failure of the connector: the message comes again, and the write is made then."""
    effect_id = await world.declare(await world.run())
    bus = ListeningBus()
    tools = await world.record.tools(bus, secrets=secrets(world.http.url))
    service = build(replace(tools, store=cast(Store, Away(tools.store))))
    await service.start()
    world.exit.push_async_callback(service.stop)
    (disposition,) = await bus.tell("effects-history", "effect.declared", effect_id)
    assert disposition.verdict == "nak"
    assert await world.record.types("effect", effect_id) == ["effect.declared"]
    assert world.target.calls() == []


async def test_a_lost_message_is_made_good_by_the_wake(world: World) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    await world.record.shift(effect.DECLARED_WATCHDOG)
    assert [due.stream_id for due in await world.record.store.due("effect", limit=10)] == [effect_id]
    await bus.wake("effects", "effect", effect_id)
    await world.until(effect_id, "succeeded")


async def test_a_cancelled_run_writes_nothing(world: World) -> None:
    _, bus = await world.service()
    told, guarded = await world.run(), await world.run()
    told_effect, guarded_effect = await world.declare(told), await world.declare(guarded)
    for run_id in (told, guarded):
        await world.record.plant(run.CATEGORY, run_id, RunCancelled(at=await world.record.store.now(), reason="no"))
    await bus.tell("effects-history", "run.cancelled", told)
    await bus.tell("effects-history", "effect.declared", guarded_effect)
    for effect_id in (told_effect, guarded_effect):
        assert (await world.record.state(effect.CATEGORY, effect_id)).status == "cancelled"
    assert world.target.calls() == []


async def test_a_suspended_run_writes_when_it_is_resumed_and_costs_no_wake_meanwhile(world: World) -> None:
    _, bus = await world.service()
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    await world.record.plant(run.CATEGORY, run_id, RunSuspended(at=await world.record.store.now(), reason="wait"))
    await bus.tell("effects-history", "effect.declared", effect_id)
    load = await world.record.store.load("effect", {effect_id: 0})
    assert (load.streams[effect_id].version, load.streams[effect_id].wake_at) == (1, None)

    await world.record.plant(run.CATEGORY, run_id, RunResumed(at=await world.record.store.now()))
    await bus.tell("effects-history", "run.resumed", run_id)
    await world.until(effect_id, "succeeded")
    assert len(world.target.calls()) == 1


async def test_a_run_that_goes_on_while_its_write_stands_back_is_not_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard refuses the write, then the run is resumed and said to be, and only then its head is read."""
    _, bus = await world.service()
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    await world.record.plant(run.CATEGORY, run_id, RunSuspended(at=await world.record.store.now(), reason="wait"))
    heads, resumed = PostgresStore.heads, 0

    async def resuming(store: PostgresStore, category: str, ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        nonlocal resumed
        if category == "effect" and not resumed:
            resumed += 1
            await world.record.plant(run.CATEGORY, run_id, RunResumed(at=await world.record.store.now()))
        return await heads(store, category, ids)

    monkeypatch.setattr(PostgresStore, "heads", resuming)
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "succeeded")
    assert resumed == 1
    assert len(world.target.calls()) == 1


async def test_no_call_is_announced_after_a_cancel_that_was_answered(world: World) -> None:
    _, bus = await world.service()
    runs = [await world.run() for _ in range(20)]
    effects = {run_id: await world.declare(run_id) for run_id in runs}

    async def cancel(run_id: UUID) -> None:
        await world.record.plant(run.CATEGORY, run_id, RunCancelled(at=await world.record.store.now(), reason="no"))
        await bus.tell("effects-history", "run.cancelled", run_id)

    tells = [bus.tell("effects-history", "effect.declared", effect_id) for effect_id in effects.values()]
    await asyncio.gather(*tells, *(cancel(run_id) for run_id in runs))

    async def settled() -> bool:
        states = [await world.record.state(effect.CATEGORY, effect_id) for effect_id in effects.values()]
        return all(state.status in {"succeeded", "cancelled"} for state in states)

    await eventually(settled)
    written = 0
    for run_id, effect_id in effects.items():
        streams = {
            **(await world.record.store.load("run", {run_id: 0})).streams,
            **(await world.record.store.load("effect", {effect_id: 0})).streams,
        }
        facts = {recorded.type: recorded.position for stream in streams.values() for recorded in stream.events}
        if "effect.pending" in facts:
            written += 1
            assert facts["effect.pending"] < facts["run.cancelled"]
    assert len(world.target.calls()) == written


async def test_an_owner_who_left_writes_nothing(world: World) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    left = UserDeactivated(at=await world.record.store.now())
    await world.record.plant(identity.CATEGORY, world.owner.id, left)
    await bus.tell("effects-history", "effect.declared", effect_id)
    state = await world.until(effect_id, "failed")
    assert state.failure_class == "missing_data"
    assert (state.message or "").count(str(world.owner.id)) == 1
    assert EMAIL not in (state.message or ""), "it goes into the history in clear"
    assert world.target.calls() == []


async def test_a_server_that_nobody_declared_is_unavailable(world: World) -> None:
    _, bus = await world.service()
    effect_id = await world.declare(await world.run(), system="elsewhere")
    await bus.tell("effects-history", "effect.declared", effect_id)
    state = await world.until(effect_id, "failed")
    assert state.failure_class == "connector_unavailable"
    assert "elsewhere" in (state.message or "")


async def test_a_call_that_did_not_start_in_time_is_not_made(world: World) -> None:
    _, bus = await world.service(effect_start_seconds=1e-9)
    effect_id = await world.declare(await world.run())
    await bus.tell("effects-history", "effect.declared", effect_id)
    state = await world.until(effect_id, "failed")
    assert (state.failure_class, state.message) == ("connector_unavailable", "not started in time")
    assert world.target.calls() == []


async def test_a_service_that_stops_in_mid_call_says_that_it_does_not_know(world: World) -> None:
    service, bus = await world.service(drain_seconds=0.05)
    effect_id = await world.declare(await world.run())
    world.target.faults.append(Fault("hang", acted=True))
    await bus.tell("effects-history", "effect.declared", effect_id)

    async def called() -> bool:
        return len(world.target.calls()) == 1

    await eventually(called)
    await service.stop()
    state = await world.record.state(effect.CATEGORY, effect_id)
    assert (state.status, state.message) == ("in_doubt", "the service stopped before the call was answered")


async def test_more_effects_than_calls_at_a_time_all_come_to_their_end(world: World) -> None:
    _, bus = await world.service(effect_calls=4, effect_calls_per_server=3)
    run_id = await world.run()
    effects = [await world.declare(run_id, key=f"pull_request:{number}") for number in range(13)]
    await bus.tell("effects-history", "effect.declared", *effects)
    for effect_id in effects:
        await world.until(effect_id, "succeeded", within=timedelta(seconds=60))
    assert len(world.target.calls()) == len(effects)


async def test_only_what_is_called_at_once_is_announced(world: World) -> None:
    """A process that is killed now leaves two effects in doubt, and the third is nobody's but the next one's."""
    _, bus = await world.service(effect_calls_per_server=2, drain_seconds=0.05)
    run_id = await world.run()
    world.target.faults += [Fault("hang"), Fault("hang")]
    *called, waiting = [await world.declare(run_id, key=f"pull_request:{number}") for number in range(3)]
    await bus.tell("effects-history", "effect.declared", *called, waiting)
    for effect_id in called:
        assert (await world.record.state(effect.CATEGORY, effect_id)).status == "pending"
    assert await world.record.types("effect", waiting) == ["effect.declared"]

    await world.record.shift(effect.DECLARED_WATCHDOG)
    assert waiting in {due.stream_id for due in await world.record.store.due("effect", limit=10)}
    await bus.wake("effects", "effect", waiting)
    assert await world.record.types("effect", waiting) == ["effect.declared"]
    assert waiting not in {due.stream_id for due in await world.record.store.due("effect", limit=10)}


async def test_what_waits_when_a_service_stops_is_due_at_once_for_another(world: World) -> None:
    service, bus = await world.service(effect_calls_per_server=1, drain_seconds=0.05)
    run_id = await world.run()
    world.target.faults.append(Fault("hang"))
    called, waiting = [await world.declare(run_id, key=f"pull_request:{number}") for number in range(2)]
    await bus.tell("effects-history", "effect.declared", called, waiting)
    await service.stop()
    assert [due.stream_id for due in await world.record.store.due("effect", limit=10)] == [waiting]


async def test_a_call_that_is_announced_while_its_service_stops_is_made_and_heard_of(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, bus = await world.service(effect_calls_per_server=1, drain_seconds=5)
    run_id = await world.run()
    first, second = [await world.declare(run_id, key=f"pull_request:{number}") for number in range(2)]
    append, announcing = PostgresStore.append, asyncio.Event()

    async def slow(store: PostgresStore, category: str, appends: Sequence[Append]) -> BatchResult:
        result = await append(store, category, appends)
        if any(
            isinstance(event, EffectPending) and each.stream_id == second for each in appends for event in each.events
        ):
            announcing.set()
            world.target.delay_seconds = 0.5
            await asyncio.sleep(0.3)
        return result

    monkeypatch.setattr(PostgresStore, "append", slow)
    await bus.tell("effects-history", "effect.declared", first, second)
    await announcing.wait()
    await service.stop()
    states = [(await world.record.state(effect.CATEGORY, each)).status for each in (first, second)]
    assert states == ["succeeded", "succeeded"]


async def test_a_server_that_hangs_holds_up_no_other(world: World) -> None:
    await world.another_server("slow")
    _, bus = await world.service(effect_calls_per_server=2, drain_seconds=0.05)
    run_id = await world.run()
    world.target.faults += [Fault("hang"), Fault("hang")]
    slow = [await world.declare(run_id, key=f"slow:{number}", system="slow") for number in range(10)]
    await bus.tell("effects-history", "effect.declared", *slow)

    async def hanging() -> bool:
        return all(fault.times == 0 for fault in world.target.faults)

    await eventually(hanging)
    other = await world.declare(run_id)
    await bus.tell("effects-history", "effect.declared", other)
    await world.until(other, "succeeded")

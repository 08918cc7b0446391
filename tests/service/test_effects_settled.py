"""Effects in doubt against a real record and a real MCP server: verdicts, looks at the target, and back-links."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest

from contracts import ids
from contracts.events.run import RunCancelled, RunResumed, RunSuspended
from libs.domain import effect, run
from services.dev.sandbox_mcp import Fault
from tests.support.effects import OVER_WITHIN, World, open_world
from tests.support.postgres import Database
from tests.support.record import ListeningBus, eventually
from tests.support.settling import LINK_TOOL, PROBE_TOOL, ask, declare_server, look, operator, until, verdict


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def in_doubt(world: World, bus: ListeningBus, *, acted: bool = True) -> UUID:
    """A write that was sent and never answered."""
    effect_id = await world.declare(await world.run())
    world.target.faults.append(Fault("drop", acted=acted))
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "in_doubt")
    return effect_id


def written(world: World) -> list[str]:
    return [call["tool"] for call in world.target.calls()]


async def test_no_verdict_while_the_call_may_be_under_way_and_the_refusal_says_until_when(world: World) -> None:
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus)
    reply = await ask(bus, await verdict(world, effect_id, "landed"))
    assert reply.problem is not None
    assert (reply.problem.status, reply.problem.code) == (409, "effect.under_way")
    state = await world.record.state(effect.CATEGORY, effect_id)
    assert state.over_at is not None
    assert reply.problem.extra["over_at"] == state.over_at.isoformat()
    await world.record.shift(OVER_WITHIN)
    assert (await ask(bus, await verdict(world, effect_id, "landed"))).problem is None


async def test_of_two_verdicts_at_once_one_counts_and_the_other_hears_whose(world: World) -> None:
    _, first = await world.service()
    _, second = await world.service()
    effect_id = await in_doubt(world, first)
    await world.record.shift(OVER_WITHIN)
    ada = await verdict(world, effect_id, "landed", reference="https://example.com/pull/1")
    bo = await verdict(world, effect_id, "not_landed", by=operator(world, "bo@example.com"))
    replies = list(zip((ada, bo), await asyncio.gather(ask(first, ada), ask(second, bo)), strict=True))
    ((winner, told),) = [(command, reply) for command, reply in replies if reply.result is not None]
    (loser,) = [reply.problem for _, reply in replies if reply.problem is not None]
    assert (loser.status, loser.code) == (409, "effect.settled")
    assert (loser.extra["who"], loser.extra["verdict"]) == (winner.principal.name, winner.verdict)
    assert loser.extra["when"]
    again = await ask(second, winner)
    assert again == told, "the same verdict sent again is answered alike"
    assert (await world.record.types("effect", effect_id)).count("effect.settled") == 1


async def test_what_landed_has_its_reference_where_the_tool_would_have_said_it(world: World) -> None:
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus)
    await world.record.shift(OVER_WITHIN)
    reply = await ask(bus, await verdict(world, effect_id, "landed", reference="https://example.com/pull/1"))
    assert reply.result is not None
    assert (reply.result.state, reply.result.reference) == ("succeeded", "https://example.com/pull/1")
    state = await world.record.state(effect.CATEGORY, effect_id)
    assert state.response is not None
    content = await world.record.store.blobs(world.record.group, [state.response.digest])
    assert content[state.response.digest] == b'{"html_url":"https://example.com/pull/1"}'
    assert len(world.target.calls()) == 1


async def test_what_is_tried_again_is_called_once_more_also_in_a_run_that_waits_for_it(world: World) -> None:
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus, acted=False)
    run_id = (await world.record.state(effect.CATEGORY, effect_id)).run_id
    assert run_id is not None
    await world.record.plant(run.CATEGORY, run_id, RunSuspended(at=await world.record.store.now(), reason="in_doubt"))
    await world.record.shift(OVER_WITHIN)
    reply = await ask(bus, await verdict(world, effect_id, "try_again"))
    assert reply.result is not None
    assert reply.result.state == "declared"
    assert written(world) == [], "a suspended run writes nothing"
    await world.record.plant(run.CATEGORY, run_id, RunResumed(at=await world.record.store.now()))
    await bus.tell("effects-history", "run.resumed", run_id)
    assert (await world.until(effect_id, "succeeded")).arm == 1
    assert len(world.target.calls()) == 1


async def test_a_look_that_finds_the_write_settles_it_and_links_it_back(world: World) -> None:
    await declare_server(world, linked=True)
    _, bus = await world.service(public_url="https://minutebook.example.com")
    effect_id = await in_doubt(world, bus)
    state = await until(world, bus, effect_id, "succeeded")
    assert state.reference is not None
    assert state.reference.endswith("/pull/1")
    link_id = ids.back_link(effect_id)
    await bus.tell("effects-history", "effect.declared", link_id)
    link = await world.until(link_id, "succeeded")
    assert (link.kind, link.of) == ("back_link", effect_id)
    (_, comment) = world.target.calls()
    assert comment["tool"] == LINK_TOOL
    assert comment["arguments"]["body"] == f"Opened by https://minutebook.example.com/runs/{state.run_id}."
    assert comment["meta"]["minutebook/idempotency-key"] == f"{state.run_id}:pull_request:back_link"


async def test_absence_that_two_looks_find_has_the_call_made_once_more(world: World) -> None:
    await declare_server(world, absent="not_landed")
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus, acted=False)
    await until(world, bus, effect_id, "succeeded")
    assert len(world.target.calls()) == 1
    types = await world.record.types("effect", effect_id)
    assert types[3:] == ["effect.probed", "effect.settled", "effect.pending", "effect.succeeded"]


async def test_an_early_wake_asks_no_target_while_the_call_may_be_under_way(world: World) -> None:
    await declare_server(world, absent="not_landed")
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus, acted=False)
    over_at = (await world.record.state(effect.CATEGORY, effect_id)).over_at
    assert over_at is not None

    await world.record.store.wake_open("effect", {"in_doubt"}, limit=10)
    await bus.wake("effects", "effect", effect_id)

    async def put_off() -> bool:
        return await world.record.store.due("effect", limit=10) == []

    await eventually(put_off)
    await world.record.shift(over_at - await world.record.store.now() - timedelta(seconds=1))
    assert await put_off(), "and no earlier look was planned"
    assert "effect.probed" not in await world.record.types("effect", effect_id)


async def test_a_target_that_shows_nothing_is_asked_five_times_and_then_costs_no_wake(world: World) -> None:
    await declare_server(world)
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus, acted=False)

    for count in range(1, 6):
        await world.record.shift(timedelta(minutes=15))
        await bus.wake("effects", "effect", effect_id)

        async def looked(count: int = count) -> bool:
            return (await world.record.state(effect.CATEGORY, effect_id)).looks == count

        await eventually(looked)
    await world.record.shift(timedelta(days=1))
    await bus.wake("effects", "effect", effect_id)
    assert await world.record.store.due("effect", limit=10) == []
    assert (await world.record.types("effect", effect_id)).count("effect.probed") == 5


async def test_an_operator_has_the_target_asked_at_once(world: World) -> None:
    await declare_server(world)
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus)
    early = await ask(bus, await look(world, effect_id))
    assert early.problem is not None
    assert early.problem.code == "effect.under_way"
    await world.record.shift(OVER_WITHIN)
    world.target.faults.append(Fault("error", tools=(PROBE_TOOL,)))
    unreachable = await ask(bus, await look(world, effect_id))
    assert unreachable.result is not None
    assert (unreachable.result.state, "did not answer" in (unreachable.result.message or "")) == ("in_doubt", True)
    found = await ask(bus, await look(world, effect_id))
    assert found.result is not None
    assert (found.result.state, found.result.message) == ("succeeded", f"{PROBE_TOOL} shows it")


async def test_a_connector_without_a_probe_cannot_be_asked(world: World) -> None:
    _, bus = await world.service()
    effect_id = await in_doubt(world, bus)
    await world.record.shift(OVER_WITHIN)
    reply = await ask(bus, await look(world, effect_id))
    assert reply.problem is not None
    assert (reply.problem.status, reply.problem.code) == (409, "effect.no_probe")


async def test_several_that_match_settle_nothing(world: World) -> None:
    await declare_server(world)
    _, bus = await world.service()
    first = await world.declare(await world.run())
    await bus.tell("effects-history", "effect.declared", first)
    await world.until(first, "succeeded")
    effect_id = await in_doubt(world, bus)
    await world.record.shift(OVER_WITHIN)
    reply = await ask(bus, await look(world, effect_id))
    assert reply.result is not None
    assert (reply.result.state, reply.result.message) == ("in_doubt", f"2 of 2 that {PROBE_TOOL} shows match")


async def test_a_back_link_that_fails_touches_neither_write_nor_run(world: World) -> None:
    await declare_server(world, linked=True)
    _, bus = await world.service()
    run_id = await world.run()
    effect_id = await world.declare(run_id)
    world.target.faults.append(Fault("error", tools=(LINK_TOOL,)))
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "succeeded")
    await world.record.plant(run.CATEGORY, run_id, RunCancelled(at=await world.record.store.now(), reason="no"))
    await bus.tell("effects-history", "run.cancelled", run_id)
    link_id = ids.back_link(effect_id)
    await bus.tell("effects-history", "effect.declared", link_id)
    await world.until(link_id, "failed")
    assert (await world.record.state(effect.CATEGORY, effect_id)).status == "succeeded"
    assert written(world) == ["create_pull_request"]


async def test_a_back_link_that_was_not_sent_is_tried_again_by_itself(world: World) -> None:
    await declare_server(world, linked=True)
    _, bus = await world.service()
    effect_id = await world.declare(await world.run())
    await bus.tell("effects-history", "effect.declared", effect_id)
    await world.until(effect_id, "succeeded")
    link_id = ids.back_link(effect_id)
    world.target.faults.append(Fault("away"))
    await bus.tell("effects-history", "effect.declared", link_id)
    assert (await world.until(link_id, "failed")).failure_class == "connector_unavailable"
    world.target.faults.clear()
    await until(world, bus, link_id, "succeeded")
    assert written(world) == ["create_pull_request", LINK_TOOL]


async def test_two_replicas_that_look_at_once_settle_it_once(world: World) -> None:
    await declare_server(world)
    _, first = await world.service()
    _, second = await world.service()
    effect_id = await in_doubt(world, first)
    await world.record.shift(OVER_WITHIN)
    await asyncio.gather(*(bus.wake("effects", "effect", effect_id) for bus in (first, second)))
    await world.until(effect_id, "succeeded")
    assert (await world.record.types("effect", effect_id)).count("effect.settled") == 1

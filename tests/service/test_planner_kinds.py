"""The planner on a real record: every kind of step, as its owner's facts move it on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Actor, Event, Frozen, JsonObject, JsonValue, Principal
from contracts.commands import (
    CancelRun,
    Command,
    CompleteStep,
    ForkRun,
    PromoteDefinition,
    RestartRun,
    RetryStep,
    StartRun,
    SyncDefinitions,
)
from contracts.envelope import Address, Envelope
from contracts.errors import Rejected
from contracts.events import admission as a
from contracts.events.attempt import AttemptFailed, AttemptStarted, AttemptSucceeded, Usage
from contracts.events.decision import DecisionAnswered
from contracts.events.definition import DefinitionSynced, SourceSynced
from contracts.events.effect import EffectPending, EffectSucceeded
from contracts.events.wait import WaitMatched
from contracts.replies import DefinitionChanged, DefinitionsSynced, RunChanged
from libs.domain import admission, attempt, decision, definition, effect, run, wait
from libs.owner import Publisher
from libs.process.asks import ask
from services.planner.admissions import TURNED_AWAY_MAX, Admissions
from services.planner.app import build
from services.planner.runs import Runs
from tests.support.effects import OVER_WITHIN
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

R = TypeVar("R", bound=Frozen)

DEADLINE = datetime(2100, 1, 1, tzinfo=UTC)

HEAD = """
workflow:
  id: trial
  name: Trial
  triggers: [{ kind: manual, roles: [developer] }]
"""
SOURCES = "sources: [{ id: internal, kind: webhook, adapter: generic, window: 1h }]"
SERVER = """
server:
  id: github
  transport: streamable_http
  url_ref: github_mcp_url
  tools: { create_pull_request: {} }
"""
PLAN = "{ key: plan, kind: agent, agent: echo, prompt: prompts/do.md }"
FIRST = "{ key: first, kind: gate, gate: exists(state.branch), wait: { for: 1h } }"
EACH = "{ key: each, kind: agent, agent: echo, prompt: prompts/do.md, for_each: { items: context.parts } }"
OK = "{ key: ok, kind: decision, role: lead, artifact: plan }"


def steps(*lines: str, rest: str = "") -> str:
    """A definition of one stage with these steps."""
    listed = "\n".join(f"        - {line}" for line in lines)
    return f"{HEAD}{rest}\n  stages:\n    - key: only\n      steps:\n{listed}\n"


@dataclass
class World:
    """A record, a planner on it, and the people and services round it."""

    record: Record
    bus: ListeningBus
    who: Principal
    runs: list[UUID] = field(default_factory=list)

    async def ask(self, command: Command, reply: type[R]) -> R:
        return await ask(self.bus, command, reply, timeout=timedelta(seconds=30))

    def of(self, **fields: Any) -> dict[str, Any]:
        return {"command_id": uuid4(), "deadline": DEADLINE, "principal": self.who, **fields}

    async def sync(self, workflow: str, *, canary_percent: int | None = None) -> str:
        """Declare the workflow and return its hash."""
        files = {
            "workflows/trial/workflow.yaml": workflow,
            "workflows/trial/prompts/do.md": "Do the work.",
            "sources.yaml": SOURCES,
            "mcp/github.yaml": SERVER,
        }
        admin = self.who.model_copy(update={"roles": frozenset({"platform_admin"})})
        sync = SyncDefinitions(**self.of(principal=admin, files=files, canary_percent=canary_percent))
        synced = await self.ask(sync, DefinitionsSynced)
        return next(thing.hash for thing in synced.synced if thing.kind == "workflow")

    async def start(self, context: JsonObject | None = None, **fields: Any) -> UUID:
        run_id = uuid4()
        start = StartRun(**self.of(run_id=run_id, definition_id="trial", context=context or {}, **fields))
        await self.ask(start, RunChanged)
        return run_id

    async def state(self, run_id: UUID) -> run.State:
        return await self.record.state(run.CATEGORY, run_id)

    async def look(self, run_id: UUID) -> run.State:
        """A wake comes."""
        await self.bus.wake("planner", "run", run_id)
        return await self.state(run_id)

    async def tell(self, run_id: UUID, type_: str, category: Any, stream_id: UUID, *facts: Event) -> run.State:
        """The owner of what the run waits for writes facts, and the planner is told."""
        await self.record.plant(category, stream_id, *facts)
        address = Address(stream_id=stream_id, version=1, correlation=run_id)
        data = Envelope(era=1, facts=(address,)).model_dump_json().encode()
        await self.bus.deliver("planner-history", f"history.{type_}", data)
        return await self.state(run_id)

    async def open(self, run_id: UUID, step: str) -> UUID:
        found = (await self.state(run_id)).step(step).open_id
        assert found is not None, step
        return found

    async def succeed(self, run_id: UUID, step: str, output: JsonValue) -> run.State:
        attempt_id, now = await self.open(run_id, step), await self.record.store.now()
        started = AttemptStarted(at=now, claim=attempt_id, runner="r")
        done = AttemptSucceeded(
            at=now,
            claim=attempt_id,
            output=await self.record.keep(output),
            usage=Usage(),
            cost_microdollars=5,
            model=None,
            turns=1,
        )
        return await self.tell(run_id, "attempt.succeeded", attempt.CATEGORY, attempt_id, started, done)

    async def fail(self, run_id: UUID, step: str) -> run.State:
        attempt_id, now = await self.open(run_id, step), await self.record.store.now()
        failed = AttemptFailed(
            at=now,
            claim=None,
            failure_class="output_invalid",
            message="no title",
            usage=Usage(),
            cost_microdollars=0,
            model=None,
            turns=0,
        )
        return await self.tell(run_id, "attempt.failed", attempt.CATEGORY, attempt_id, failed)

    async def answer(self, run_id: UUID, step: str, outcome: Any) -> run.State:
        decision_id, now = await self.open(run_id, step), await self.record.store.now()
        answered = DecisionAnswered(
            at=now,
            command_id=uuid4(),
            outcome=outcome,
            by=Actor(kind="user", id=uuid4(), name="lena@example.com"),
            comment=None,
            artifact=(await self.record.state(decision.CATEGORY, decision_id)).artifact,
            revised=None,
        )
        return await self.tell(run_id, "decision.answered", decision.CATEGORY, decision_id, answered)

    async def written(self, run_id: UUID, step: str, response: JsonValue) -> run.State:
        effect_id, now = await self.open(run_id, step), await self.record.store.now()
        pending = EffectPending(at=now, claim=effect_id, arm=0, over_at=now + OVER_WITHIN)
        done = EffectSucceeded(at=now, claim=effect_id, reference=None, response=await self.record.keep(response))
        return await self.tell(run_id, "effect.succeeded", effect.CATEGORY, effect_id, pending, done)

    async def output(self, run_id: UUID, step: str) -> Any:
        ref = (await self.state(run_id)).step(step).output
        assert ref is not None
        return json.loads((await self.record.store.blobs(self.record.group, [ref.digest]))[ref.digest])


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        record = await stack.enter_async_context(open_record(database))
        bus = ListeningBus()
        tools = await record.tools(bus)
        assert tools.pool is not None
        stack.push_async_callback(tools.pool.close)
        build(tools)
        who = Principal(
            kind="user",
            id=uuid4(),
            name="dana@example.com",
            tenant_group=record.group,
            tenant=record.tenant,
            roles=frozenset({"developer"}),
        )
        yield World(record, bus, who)


async def test_a_manual_step_is_completed_by_an_ask(world: World) -> None:
    await world.sync(steps("{ key: note, kind: manual }", "{ key: after, kind: gate, gate: steps.note.fit == true }"))
    run_id = await world.start()
    assert (await world.state(run_id)).status == "waiting_decision"
    command = CompleteStep(**world.of(run_id=run_id, step="note", artifact={"fit": True}))
    assert (await world.ask(command, RunChanged)).state == "completed"
    assert (await world.ask(command, RunChanged)).state == "completed"
    with pytest.raises(Rejected, match="completed once"):
        await world.ask(CompleteStep(**world.of(run_id=run_id, step="note", artifact={})), RunChanged)


async def test_an_event_step_takes_what_its_wait_was_matched_with(world: World) -> None:
    line = '{ key: merged, kind: event, source: internal, match: { event: merged, pr: "$context.pr" }, timeout: 1h }'
    await world.sync(steps(line))
    run_id = await world.start({"pr": 7})
    wait_id = await world.open(run_id, "merged")
    opened = await world.record.state(wait.CATEGORY, wait_id)
    assert (opened.status, opened.match) == ("opening", {"event": "merged", "pr": 7})
    matched = WaitMatched(
        at=await world.record.store.now(),
        inbound_id=uuid4(),
        external_id="e-1",
        event="merged",
        keys={"pr": 7},
        payload=await world.record.keep({"sha": "abc"}),
    )
    state = await world.tell(run_id, "wait.matched", wait.CATEGORY, wait_id, matched)
    assert state.status == "completed"
    assert (await world.output(run_id, "merged"))["payload"] == {"sha": "abc"}


async def test_a_timeout_and_a_delay_come_by_the_clock(world: World) -> None:
    await world.sync(steps(FIRST, "{ key: note, kind: manual, timeout: 2h }"))
    run_id = await world.start()
    assert (await world.look(run_id)).status == "waiting_timer"
    await world.record.shift(timedelta(hours=1, seconds=1))
    assert (await world.look(run_id)).status == "waiting_decision"
    await world.record.shift(timedelta(hours=2, seconds=1))
    state = await world.look(run_id)
    assert (state.status, state.failure_class) == ("suspended", "timeout")


async def test_an_escalation_is_born_with_the_failure(world: World) -> None:
    await world.sync(steps(PLAN, rest="  on_failure: { default: escalate }"))
    run_id = await world.start()
    state = await world.fail(run_id, "plan")
    assert state.status == "waiting_decision"
    asked = await world.record.state(decision.CATEGORY, await world.open(run_id, "plan"))
    assert (asked.status, asked.role) == ("open", "admin")
    state = await world.answer(run_id, "plan", "approve")
    assert (state.status, state.step("plan").attempt) == ("running", 2)


async def test_any_and_items_join(world: World) -> None:
    branches = ", ".join(f"{{ key: {key}, agent: echo, prompt: prompts/do.md }}" for key in "ab")
    line = f"{{ key: build, kind: parallel, join: any, parallel: [{branches}] }}"
    each = EACH.replace("context.parts", "context.parts, max_parallel: 1")
    await world.sync(steps(line, each))
    run_id = await world.start({"parts": ["x", "y"]})
    state = await world.succeed(run_id, "build.b", {"n": 1})
    assert state.step("build.a").status == "cancelled"
    assert await world.output(run_id, "build") == {"b": {"n": 1}}
    await world.succeed(run_id, "each.0", {"n": 0})
    assert (await world.succeed(run_id, "each.1", {"n": 1})).status == "completed"
    assert await world.output(run_id, "each") == [{"n": 0}, {"n": 1}]


async def test_writes_of_items_are_effects_of_their_own(world: World) -> None:
    file = (
        "{ key: file, kind: write, system: github, tool: create_pull_request, requires_decision: ok, "
        'for_each: { items: steps.plan.parts }, args_from: item, effect_key: "pr:{{item.title}}" }'
    )
    await world.sync(steps(PLAN, OK, file))
    run_id = await world.start()
    await world.succeed(run_id, "plan", {"parts": [{"title": "one"}, {"title": "two"}]})
    await world.answer(run_id, "ok", "approve")
    for index, title in enumerate(("one", "two")):
        assert await world.open(run_id, f"file.{index}") == ids.effect(run_id, f"pr:{title}")
        await world.written(run_id, f"file.{index}", {"number": index})
    assert (await world.state(run_id)).status == "completed"
    assert await world.output(run_id, "file") == [{"number": 0}, {"number": 1}]


class TestAdmission:
    KEYED = '  concurrency: { key: "{{context.repo}}", limit: 1, max_queued: 1 }'

    async def verdict(self, world: World, key_id: UUID, fact: Event, version: int) -> None:
        """The scheduler decides; the envelope's correlation is the key, not the run."""
        await world.record.plant(admission.CATEGORY, key_id, fact)
        address = Address(stream_id=key_id, version=version, correlation=key_id)
        data = Envelope(era=1, facts=(address,)).model_dump_json().encode()
        kind = type(fact).__name__.removeprefix("Admission").lower()
        await world.bus.deliver("planner-history", f"history.admission.{kind}", data)

    async def test_it_is_held_granted_refused_and_given_back(self, world: World) -> None:
        await world.sync(steps("{ key: note, kind: manual }", rest=self.KEYED))
        first, second = await world.start({"repo": "x"}), await world.start({"repo": "x"})
        key_id = ids.admission(world.record.group, "trial", "x")
        of: Any = {"at": await world.record.store.now(), "definition_id": "trial", "key": "x", "limit": 1}
        await self.verdict(world, key_id, a.AdmissionGranted(run_id=first, **of), 1)
        await self.verdict(world, key_id, a.AdmissionQueued(run_id=second, mode="queue", **of), 2)
        assert (await world.state(first)).status == "waiting_decision"
        held = await world.state(second)
        assert (held.status, held.held) == ("created", True)
        with pytest.raises(Rejected) as error:
            await world.start({"repo": "x"})
        assert (error.value.status, error.value.code) == (429, "admission.full")
        await world.ask(CancelRun(**world.of(run_id=first)), RunChanged)
        assert (await world.record.types("run", first))[-2:] == ["run.cancelled", "run.admission_returned"]
        await self.verdict(world, key_id, a.AdmissionReturned(at=of["at"], run_id=first), 3)
        await self.verdict(world, key_id, a.AdmissionGranted(run_id=second, **of), 4)
        assert (await world.state(second)).status == "waiting_decision"

    async def test_a_refused_and_a_superseded_run_end(self, world: World) -> None:
        await world.sync(steps("{ key: note, kind: manual }", rest=self.KEYED))
        first, second = await world.start({"repo": "y"}), await world.start({"repo": "y"})
        key_id, now = ids.admission(world.record.group, "trial", "y"), await world.record.store.now()
        await self.verdict(world, key_id, a.AdmissionRefused(at=now, run_id=first, reason="1 waits"), 1)
        await self.verdict(world, key_id, a.AdmissionSuperseded(at=now, run_id=second, by=first), 2)
        assert (await world.state(first)).reason == "admission.full: 1 waits"
        assert (await world.state(second)).status == "superseded"


async def test_a_key_is_read_on_from_where_it_was_and_by_several_at_once(world: World) -> None:
    key_id, now, newer = uuid4(), await world.record.store.now(), uuid4()
    of: Any = {"at": now, "definition_id": "trial", "key": "", "limit": 1, "mode": "coalesce"}
    early, *others = (uuid4() for _ in range(TURNED_AWAY_MAX + 5))
    admissions = Admissions(world.record.store)
    await world.record.plant(admission.CATEGORY, key_id, a.AdmissionQueued(run_id=newer, **of))
    await asyncio.gather(*(admissions.states([key_id]) for _ in range(4)))
    for run_ids in ([early], others):
        away = [a.AdmissionSuperseded(at=now, run_id=run_id, by=newer) for run_id in run_ids]
        await world.record.plant(admission.CATEGORY, key_id, *away)
        await asyncio.gather(*(admissions.states([key_id]) for _ in range(4)))
    found = await admissions.verdicts({early: key_id, others[-1]: key_id, newer: key_id, uuid4(): key_id})
    assert found.keys() == {early, others[-1], newer}
    assert (await admissions.states([key_id]))[key_id].queued == (newer,)


async def test_a_restart_takes_the_version_of_now_and_a_fork_keeps_its_own(world: World) -> None:
    await world.sync(steps(PLAN, OK))
    run_id = await world.start({"k": 1})
    await world.succeed(run_id, "plan", {"title": "t"})
    newer = await world.sync(steps(PLAN, OK, "{ key: more, kind: manual }"))
    restarted, forked = uuid4(), uuid4()
    command = RestartRun(**world.of(run_id=run_id, new_run_id=restarted))
    assert (await world.ask(command, RunChanged)).state == "running"
    assert (await world.ask(command, RunChanged)).run_id == restarted
    state = await world.state(restarted)
    assert (state.hash, state.parent, state.context) == (newer, run_id, {"k": 1})
    await world.ask(ForkRun(**world.of(run_id=run_id, new_run_id=forked)), RunChanged)
    state = await world.state(forked)
    assert (state.hash == newer, state.parent, state.status) == (False, run_id, "waiting_decision")
    assert await world.output(forked, "plan") == {"title": "t"}
    stranger = world.who.model_copy(update={"id": uuid4()})
    for fork in (
        ForkRun(**world.of(run_id=run_id, new_run_id=uuid4(), principal=stranger, from_step="nowhere")),
        ForkRun(**world.of(run_id=uuid4(), new_run_id=uuid4())),
    ):
        with pytest.raises(Rejected) as error:
            await world.ask(fork, RunChanged)
        assert error.value.status == 404


async def test_a_fork_never_writes_again_what_its_parent_wrote(world: World) -> None:
    file = (
        "{ key: file, kind: write, system: github, tool: create_pull_request, requires_decision: ok, "
        'args: { title: t }, effect_key: "pr" }'
    )
    await world.sync(steps(PLAN, OK, file, "{ key: note, kind: manual }"))
    run_id, forked = await world.start(), uuid4()
    await world.succeed(run_id, "plan", {})
    await world.answer(run_id, "ok", "approve")
    await world.written(run_id, "file", {"number": 7})
    await world.ask(ForkRun(**world.of(run_id=run_id, new_run_id=forked, from_step="file")), RunChanged)
    await world.look(forked)
    state = await world.state(forked)
    assert state.status == "waiting_decision"
    assert state.step("file").effect_id == ids.effect(run_id, "pr")
    assert await world.output(forked, "file") == {"number": 7}
    assert await world.record.types("effect", ids.effect(forked, "pr")) == []


async def test_a_share_of_new_runs_takes_the_canary_until_one_is_promoted(world: World) -> None:
    older = await world.sync(steps("{ key: note, kind: manual }"))
    canary = await world.sync(steps("{ key: note, kind: manual }", OK.replace("plan", "note")), canary_percent=50)
    taken = {(await world.state(await world.start())).hash for _ in range(30)}
    assert taken == {older, canary}
    admin = world.who.model_copy(update={"roles": frozenset({"platform_admin"})})
    promote = PromoteDefinition(**world.of(principal=admin, definition_id="trial", hash=canary))
    assert (await world.ask(promote, DefinitionChanged)).hash == canary
    assert {(await world.state(await world.start())).hash for _ in range(10)} == {canary}
    await world.ask(
        PromoteDefinition(**world.of(principal=admin, definition_id="trial", hash=older)), DefinitionChanged
    )
    assert (await world.state(await world.start())).hash == older
    for bad, status in (({"hash": "0" * 64}, 422), ({"definition_id": "nobody"}, 404), ({"principal": world.who}, 403)):
        fields: Any = {"principal": admin, "definition_id": "trial", "hash": older} | bad
        with pytest.raises(Rejected) as error:
            await world.ask(PromoteDefinition(**world.of(**fields)), DefinitionChanged)
        assert error.value.status == status


async def test_what_a_sync_declares_is_told_whole(world: World) -> None:
    schedule = '    - { kind: schedule, cron: "0 0 7 * * 1", timezone: Europe/Berlin }\n  run_as: bot@example.com'
    variants = "\n  variants: { india: { stages.only.steps.note.name: Note } }"
    text = steps("{ key: note, kind: manual }").replace(
        "  triggers: [{ kind: manual, roles: [developer] }]",
        "  triggers:\n    - { kind: manual, roles: [developer] }\n" + schedule + variants,
    )
    await world.sync(text)
    synced = (await world.record.state(definition.CATEGORY, ids.definition(world.record.group, "trial"))).current
    assert isinstance(synced, DefinitionSynced)
    assert [(line.cron, line.timezone, line.run_as) for line in synced.schedules] == [
        ("0 0 7 * * 1", "Europe/Berlin", "bot@example.com")
    ]
    assert synced.variants == ("india",)
    source = (await world.record.state(definition.CATEGORY, ids.source("internal"))).current
    assert isinstance(source, SourceSynced)
    assert source.window_seconds == 3600
    run_id = await world.start(variant="india")
    assert (await world.state(run_id)).variant == "india"


async def test_two_looks_at_once_make_one_transition(world: World) -> None:
    await world.sync(steps(FIRST, "{ key: note, kind: manual }"))
    run_id = await world.start()
    await world.record.shift(timedelta(hours=1, seconds=1))
    await asyncio.gather(*(world.look(run_id) for _ in range(8)))
    assert (await world.record.types("run", run_id)).count("run.manual_opened") == 1


async def test_a_failed_item_alone_is_tried_again(world: World) -> None:
    await world.sync(steps(EACH))
    run_id = await world.start({"parts": [1, 2]})
    await world.succeed(run_id, "each.0", {"n": 0})
    assert (await world.fail(run_id, "each.1")).status == "suspended"
    await world.ask(RetryStep(**world.of(run_id=run_id, step="each")), RunChanged)
    state = await world.state(run_id)
    assert (state.step("each.0").attempts, state.step("each.1").attempts) == (1, 2)
    assert (await world.succeed(run_id, "each.1", {"n": 1})).status == "completed"


async def test_a_run_as_long_as_it_may_be_is_suspended_in_place_of_its_next_plan(world: World) -> None:
    """The limit is lowered to what its start wrote."""
    await world.sync(steps(PLAN))
    run_id = await world.start()
    length = len(await world.record.types("run", run_id))
    store = world.record.store
    runs = Runs(store, Publisher(world.bus, store), stream_events_max=length)
    assert await runs.plan({run_id: None}) == {}
    state = await world.state(run_id)
    assert state.status == "suspended"
    assert state.reason == f"STREAM_EVENTS_MAX: the run has {length} facts, and {length} is as many as it may have"
    assert await runs.plan({run_id: None}) == {}
    assert len(await world.record.types("run", run_id)) == length + 1

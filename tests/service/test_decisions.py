"""The decision service against a real record: one answer, from who may give it, while the run is active."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from contracts.base import JsonValue, Principal
from contracts.commands import AnswerDecision
from contracts.errors import MinutebookError, Rejected
from contracts.events.decision import DecisionOpened
from contracts.events.run import (
    RoleBinding,
    RunCancelled,
    RunCreated,
    RunFailed,
    RunStarted,
    RunStepFailed,
    RunStepWaiting,
    RunSuspended,
    Trigger,
    UserRef,
)
from contracts.replies import DecisionAccepted
from libs.domain import decision, run
from libs.language.model import AgentStep, Bundle, DecisionStep, Definition, ParallelStep, Stage
from libs.process.asks import ask
from minutebook.models.states import DecisionOutcome
from services.decision.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

SCHEMA: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"pull_request": {"type": "object", "properties": {"title": {"type": "string"}}}},
    "required": ["pull_request"],
}
BUNDLE = Bundle(
    definition=Definition(
        id="core-dev",
        name="Core Dev flow",
        stages=(
            Stage(
                key="only",
                steps=(
                    AgentStep(key="review", prompt="p.md", output="s.json"),
                    ParallelStep(key="implement", parallel=(AgentStep(key="backend", prompt="p.md", output="s.json"),)),
                    DecisionStep(key="approval", role="lead", artifact="review"),
                ),
            ),
        ),
    ),
    prompts={"p.md": "Work."},
    schemas={"s.json": SCHEMA},
    hash="0" * 64,
)
INITIATOR = UserRef(id=uuid4(), email="sam@example.com")


@dataclass
class World:
    """A record and two replicas of the service."""

    record: Record
    buses: tuple[ListeningBus, ListeningBus]

    async def run(self) -> UUID:
        """A run that is running."""
        run_id, now = uuid4(), await self.record.store.now()
        created = RunCreated(
            at=now,
            definition_id="core-dev",
            hash=BUNDLE.hash,
            bundle=await self.record.keep(BUNDLE.model_dump(mode="json")),
            context={},
            initiated_by=INITIATOR,
            trigger=Trigger(kind="manual"),
            project_id="core",
        )
        await self.record.plant(run.CATEGORY, run_id, created, RunStarted(at=now))
        return run_id

    async def open(
        self, run_id: UUID, *, artifact_step: str = "review", step: str = "approval", due: timedelta | None = None
    ) -> UUID:
        """An open decision that the run waits for; `due` is its first window and the one before it is escalated."""
        decision_id, now = uuid4(), await self.record.store.now()
        opened = DecisionOpened(
            at=now,
            run_id=run_id,
            definition_id="core-dev",
            step=step,
            title="Approval",
            round=1,
            role="lead",
            binding=RoleBinding(roles=("lead_dev",)),
            outcomes=("approve", "request_changes", "reject", "cancel"),
            artifact_step=artifact_step,
            artifact=await self.record.keep({"pull_request": {"title": "As it was"}}),
            initiated_by=INITIATOR,
            project_id="core",
            due_at=now + due if due else None,
            due_seconds=due.total_seconds() if due else None,
            escalate_to="chief" if due else None,
            escalate_binding=RoleBinding(roles=("chief",)) if due else None,
        )
        waiting = RunStepWaiting(
            at=now, step=step, round=1, decision_id=decision_id, artifact_step=artifact_step, artifact=opened.artifact
        )
        await self.record.plant(run.CATEGORY, run_id, waiting)
        await self.record.plant(decision.CATEGORY, decision_id, opened)
        return decision_id

    async def due(self) -> list[UUID]:
        return [due.stream_id for due in await self.record.store.due("decision", limit=100)]

    def principal(
        self,
        name: str = "lena",
        *,
        roles: tuple[str, ...] = ("lead_dev",),
        project: str = "core",
        group: UUID | None = None,
    ) -> Principal:
        return Principal(
            kind="user",
            id=uuid4(),
            name=f"{name}@example.com",
            tenant_group=group or self.record.group,
            tenant=self.record.tenant,
            roles=frozenset(roles),
            projects=frozenset({project}),
        )

    async def answer(
        self,
        decision_id: UUID,
        principal: Principal | None = None,
        outcome: DecisionOutcome = "approve",
        *,
        replica: int = 0,
        command_id: UUID | None = None,
        revised: JsonValue = None,
    ) -> DecisionAccepted:
        command = AnswerDecision(
            command_id=command_id or uuid4(),
            deadline=await self.record.store.now() + timedelta(minutes=1),
            principal=principal or self.principal(),
            decision_id=decision_id,
            outcome=outcome,
            comment="Well done.",
            revised_artifact=revised,
        )
        return await ask(self.buses[replica], command, DecisionAccepted, timeout=timedelta(seconds=10))

    async def status(self, decision_id: UUID) -> str:
        return (await self.record.state(decision.CATEGORY, decision_id)).status


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        buses = (ListeningBus(), ListeningBus())
        async with exit_:
            for bus in buses:
                service = build(await record.tools(bus))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield World(record, buses)


async def test_an_answer_is_recorded_under_the_principals_name(world: World) -> None:
    run_id = await world.run()
    decision_id = await world.open(run_id)
    accepted = await world.answer(decision_id)
    assert accepted == DecisionAccepted(decision_id=decision_id, run_id=run_id, outcome="approve", revised=False)
    state = await world.record.state(decision.CATEGORY, decision_id)
    assert state.by is not None
    assert (state.by.name, state.comment) == ("lena@example.com", "Well done.")
    assert [message.subject for message in world.buses[0].published] == ["history.decision.answered"]


async def test_of_two_simultaneous_answers_one_wins_and_the_other_hears_who(world: World) -> None:
    run_id = await world.run()
    for _ in range(10):
        decision_id = await world.open(run_id)
        results = await asyncio.gather(
            world.answer(decision_id, world.principal("lena"), "approve", replica=0),
            world.answer(decision_id, world.principal("omar"), "reject", replica=1),
            return_exceptions=True,
        )
        (won,) = [result for result in results if isinstance(result, DecisionAccepted)]
        (lost,) = [result for result in results if isinstance(result, MinutebookError)]
        state = await world.record.state(decision.CATEGORY, decision_id)
        assert (lost.status, lost.code) == (409, "decision.answered")
        assert state.by is not None
        assert state.answered_at is not None
        assert lost.extra == {"who": state.by.name, "when": state.answered_at.isoformat(), "outcome": won.outcome}
        assert await world.record.types("decision", decision_id) == ["decision.opened", "decision.answered"]


async def test_the_same_command_sent_to_both_replicas_gets_the_same_reply(world: World) -> None:
    decision_id, command_id, by = await world.open(await world.run()), uuid4(), world.principal()
    replies = await asyncio.gather(
        *(world.answer(decision_id, by, command_id=command_id, replica=replica) for replica in (0, 1, 0, 1))
    )
    assert len(set(map(repr, replies))) == 1
    assert await world.record.types("decision", decision_id) == ["decision.opened", "decision.answered"]


async def test_what_another_group_owns_is_as_absent_as_what_never_was(world: World) -> None:
    decision_id = await world.open(await world.run())
    stranger = world.principal(roles=("platform_admin", "lead_dev"), group=uuid4())
    problems = []
    tries: list[tuple[UUID, JsonValue]] = [(decision_id, None), (decision_id, {"wrong": True}), (uuid4(), None)]
    for asked, revised in tries:
        with pytest.raises(Rejected) as caught:
            await world.answer(asked, stranger, revised=revised)
        problems.append(caught.value.problem())
    assert problems[0] == problems[1] == problems[2]
    assert (problems[0].status, problems[0].code) == (404, "decision.not_found")


async def test_without_the_role_it_is_403_and_without_sight_404(world: World) -> None:
    decision_id = await world.open(await world.run())
    for principal, status in (
        (world.principal(roles=("developer",)), 403),
        (world.principal(roles=("developer",), project="other"), 404),
    ):
        with pytest.raises(Rejected) as caught:
            await world.answer(decision_id, principal, revised={"wrong": True})
        assert caught.value.status == status


async def test_a_revision_that_fits_is_kept(world: World) -> None:
    decision_id = await world.open(await world.run())
    assert (await world.answer(decision_id, revised={"pull_request": {"title": "Better"}})).revised
    state = await world.record.state(decision.CATEGORY, decision_id)
    assert state.revised is not None
    content = await world.record.store.blobs(world.record.group, [state.revised.digest])
    assert content[state.revised.digest] == b'{"pull_request":{"title":"Better"}}'


@pytest.mark.parametrize(
    ("step", "revised", "paths"),
    [
        ("review", {"pull_request": {"title": 7}}, ["revised_artifact.pull_request.title"]),
        ("review", {}, ["revised_artifact"]),
        ("review", ["not", "an", "object"], ["revised_artifact"]),
        ("implement", {"backend": {"pull_request": 1}}, ["revised_artifact.backend.pull_request"]),
        ("implement", {"frontend": {}}, ["revised_artifact.frontend", "revised_artifact.backend"]),
    ],
)
async def test_a_revision_that_does_not_fit_says_where(
    world: World, step: str, revised: JsonValue, paths: list[str]
) -> None:
    decision_id = await world.open(await world.run(), artifact_step=step)
    with pytest.raises(Rejected) as caught:
        await world.answer(decision_id, revised=revised)
    assert (caught.value.status, caught.value.code) == (422, "decision.revision")
    assert [problem.path for problem in caught.value.errors] == paths
    assert await world.status(decision_id) == "open"


async def test_a_suspended_run_takes_no_answer(world: World) -> None:
    run_id = await world.run()
    decision_id = await world.open(run_id)
    await world.record.plant(run.CATEGORY, run_id, RunSuspended(at=await world.record.store.now(), reason="wait"))
    with pytest.raises(Rejected) as caught:
        await world.answer(decision_id)
    assert (caught.value.status, await world.status(decision_id)) == (409, "open")


async def test_the_decisions_of_a_run_that_ended_are_withdrawn(world: World) -> None:
    cancelled, failed, lost = await world.run(), await world.run(), await world.run()
    of_cancelled, of_failed, of_lost = await world.open(cancelled), await world.open(failed), await world.open(lost)
    answered = await world.open(cancelled)
    await world.answer(answered)
    now = await world.record.store.now()
    await world.record.plant(run.CATEGORY, cancelled, RunCancelled(at=now, reason="no"))
    await world.record.plant(run.CATEGORY, failed, RunFailed(at=now, failure_class="default", reason="broke"))
    await world.record.plant(run.CATEGORY, lost, RunCancelled(at=now, reason="no"))
    await world.buses[0].tell("decision-history", "run.cancelled", cancelled, cancelled)
    await world.buses[1].tell("decision-history", "run.failed", failed)
    await world.buses[1].wake("decision", "decision", of_lost, answered)
    for decision_id in (of_cancelled, of_failed, of_lost):
        assert await world.status(decision_id) == "withdrawn"
    assert await world.status(answered) == "answered"
    with pytest.raises(Rejected) as caught:
        await world.answer(of_cancelled)
    assert (caught.value.status, caught.value.code) == (409, "decision.withdrawn")


async def test_no_answer_is_recorded_after_the_cancel_that_it_raced(world: World) -> None:
    async def cancel(run_id: UUID) -> None:
        cancelled = RunCancelled(at=await world.record.store.now(), reason="no")
        await world.record.plant(run.CATEGORY, run_id, cancelled)

    runs = [await world.run() for _ in range(15)]
    decisions = {run_id: await world.open(run_id) for run_id in runs}
    answers = [world.answer(decision_id) for decision_id in decisions.values()]
    await asyncio.gather(*answers, *(cancel(run_id) for run_id in runs), return_exceptions=True)
    for run_id, decision_id in decisions.items():
        streams = {
            **(await world.record.store.load("run", {run_id: 0})).streams,
            **(await world.record.store.load("decision", {decision_id: 0})).streams,
        }
        facts = {recorded.type: recorded.position for stream in streams.values() for recorded in stream.events}
        assert facts.get("decision.answered", 0) < facts["run.cancelled"]


async def test_what_is_due_is_reminded_then_escalated_once_whoever_is_woken(world: World) -> None:
    hour = timedelta(hours=1)
    decision_id = await world.open(await world.run(), due=hour)
    await world.buses[0].wake("decision", "decision", decision_id)
    assert await world.due() == []
    expected = ["decision.opened"]
    for fact in ("decision.reminded", "decision.escalated"):
        await world.record.shift(hour)
        assert await world.due() == [decision_id]
        await asyncio.gather(*(bus.wake("decision", "decision", decision_id) for bus in world.buses for _ in range(3)))
        expected.append(fact)
        assert await world.record.types("decision", decision_id) == expected
        assert await world.due() == []
    await world.record.shift(hour)
    assert await world.due() == []
    accepted = await world.answer(decision_id, world.principal(roles=("chief",)))
    assert accepted.outcome == "approve"


async def test_a_decision_whose_step_failed_is_withdrawn_and_no_other(world: World) -> None:
    run_id = await world.run()
    late, other = await world.open(run_id, step="late"), await world.open(run_id, step="other")
    failed = RunStepFailed(
        at=await world.record.store.now(), step="late", failure_class="timeout", message="nobody answered in time"
    )
    await world.record.plant(run.CATEGORY, run_id, failed)
    await world.buses[0].tell("decision-history", "run.step_failed", run_id)
    state = await world.record.state(decision.CATEGORY, late)
    assert (state.status, await world.status(other)) == ("withdrawn", "open")
    assert "timeout" in str(state.withdrawn_because)
    await world.buses[0].tell("decision-history", "run.step_failed", run_id)
    again = await world.open(run_id, step="late")
    await world.buses[1].tell("decision-history", "run.step_failed", run_id)
    assert await world.status(again) == "open"


async def test_a_decision_whose_withdrawal_was_told_to_nobody_is_withdrawn_when_it_is_looked_at(world: World) -> None:
    run_id = await world.run()
    decision_id = await world.open(run_id)
    await world.buses[0].wake("decision", "decision", decision_id)
    assert await world.status(decision_id) == "open"
    failed = RunStepFailed(at=await world.record.store.now(), step="approval", failure_class="timeout", message="late")
    await world.record.plant(run.CATEGORY, run_id, failed)
    await world.buses[0].wake("decision", "decision", decision_id)
    assert await world.status(decision_id) == "withdrawn"

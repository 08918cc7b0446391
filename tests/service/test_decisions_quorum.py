"""Votes against a real record: voters named from the people there are, none lost, none counted twice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.base import JsonValue, Principal
from contracts.commands import AnswerDecision, ReassignDecision
from contracts.errors import MinutebookError, Rejected
from contracts.events import decision as e
from contracts.events import identity as i
from contracts.events.run import RoleBinding, RunCancelled, RunStepWaiting, UserRef
from contracts.replies import DecisionAccepted, DecisionChanged
from libs.domain import decision, identity, run
from libs.process.asks import ask
from services.decision.app import build
from tests.service.test_decisions import INITIATOR, World
from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record

LEAD, SECURITY = RoleBinding(roles=("lead_dev",)), RoleBinding(groups=("security",))


class People(World):
    """The record of another test, with people in it and a quorum to vote on."""

    async def person(
        self,
        name: str,
        *roles: str,
        groups: tuple[str, ...] = (),
        projects: tuple[str, ...] = ("core",),
        kind: Any = "user",
    ) -> Principal:
        user_id, email = uuid4(), f"{name}@example.com"
        registered = i.UserRegistered(
            at=await self.record.store.now(),
            email=email,
            name=name,
            kind=kind,
            roles=roles,
            groups=groups,
            projects=projects,
        )
        await self.record.plant(identity.CATEGORY, user_id, registered)
        return Principal(
            kind=kind,
            id=user_id,
            name=email,
            tenant_group=self.record.group,
            tenant=self.record.tenant,
            roles=frozenset(roles),
            groups=frozenset(groups),
            projects=frozenset(projects),
        )

    async def ask_for(self, run_id: UUID, need: int, **changes: Any) -> UUID:
        decision_id, now = uuid4(), await self.record.store.now()
        artifact = await self.record.keep({"pull_request": {"title": "As it was"}})
        groups = (e.QuorumGroup(role="security", binding=SECURITY, need=1),) if changes.pop("security", False) else ()
        opened = e.DecisionOpened.model_validate(
            {
                "at": now,
                "run_id": run_id,
                "definition_id": "core-dev",
                "step": "approval",
                "title": "Approval",
                "round": 1,
                "role": "lead",
                "binding": LEAD,
                "outcomes": ("approve", "request_changes", "reject", "cancel"),
                "artifact_step": "review",
                "artifact": artifact,
                "initiated_by": INITIATOR,
                "project_id": "core",
                "quorum": e.Quorum(need=need, groups=groups) if need else None,
                **changes,
            }
        )
        waiting = RunStepWaiting(
            at=now, step="approval", round=1, decision_id=decision_id, artifact_step="review", artifact=artifact
        )
        await self.record.plant(run.CATEGORY, run_id, waiting)
        await self.record.plant(decision.CATEGORY, decision_id, opened)
        return decision_id

    async def say(
        self, decision_id: UUID, by: Principal, outcome: Any = "answer", *, answer: JsonValue = None, replica: int = 0
    ) -> DecisionAccepted:
        command = AnswerDecision(
            command_id=uuid4(),
            deadline=await self.record.store.now() + timedelta(minutes=1),
            principal=by,
            decision_id=decision_id,
            outcome=outcome,
            answer=answer,
        )
        return await ask(self.buses[replica], command, DecisionAccepted, timeout=timedelta(seconds=10))

    async def reassign(self, decision_id: UUID, to: Principal, from_: Principal | None) -> DecisionChanged:
        admin = await self.person(f"admin-{uuid4()}", "platform_admin")
        command = ReassignDecision(
            command_id=uuid4(),
            deadline=await self.record.store.now() + timedelta(minutes=1),
            principal=admin,
            decision_id=decision_id,
            from_user=from_.id if from_ else None,
            to_user=UserRef(id=to.id, email=to.name),
        )
        return await ask(self.buses[0], command, DecisionChanged, timeout=timedelta(seconds=10))

    async def leave(self, person: Principal) -> None:
        gone = i.UserDeactivated(at=await self.record.store.now())
        await self.record.plant(identity.CATEGORY, person.id, gone)
        await self.buses[0].tell("decision-history", "identity.user_deactivated", person.id)

    async def decision(self, decision_id: UUID) -> decision.State:
        return await self.record.state(decision.CATEGORY, decision_id)


@pytest.fixture
async def world(database: Database) -> AsyncIterator[People]:
    async with AsyncExitStack() as exit_, open_record(database) as record:
        buses = (ListeningBus(), ListeningBus())
        async with exit_:
            for bus in buses:
                service = build(await record.tools(bus))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield People(record, buses)


async def test_the_voters_are_the_people_who_hold_the_roles_and_see_the_run(world: People) -> None:
    ana = await world.person("ana", "lead_dev")
    sec = await world.person("sec", groups=("security",))
    await world.person("elsewhere", "lead_dev", projects=("other",))
    await world.person("robot", "lead_dev", kind="service_user")
    await world.leave(await world.person("gone", "lead_dev"))
    decision_id = await world.ask_for(await world.run(), 2, security=True)
    await world.buses[0].tell("decision-history", "decision.opened", decision_id)
    await world.buses[1].tell("decision-history", "decision.opened", decision_id)
    assert await world.record.types("decision", decision_id) == ["decision.opened", "decision.seated"]
    state = await world.decision(decision_id)
    assert {seat.role: seat.voters for seat in state.seats or ()} == {"lead": (ana.id,), "security": (sec.id,)}
    late = await world.person("late", "lead_dev")
    with pytest.raises(Rejected) as caught:
        await world.answer(decision_id, late)
    assert (caught.value.status, caught.value.code) == (403, "decision.not_yours")


async def test_two_voters_in_the_same_moment_are_both_counted(world: People) -> None:
    ana, ben = await world.person("ana", "lead_dev"), await world.person("ben", "lead_dev")
    run_id = await world.run()
    for _ in range(10):
        decision_id = await world.ask_for(run_id, 2)
        replies = await asyncio.gather(
            world.answer(decision_id, ana, replica=0), world.answer(decision_id, ben, replica=1)
        )
        assert sorted((reply.state, reply.approvals) for reply in replies) == [("answered", 2), ("open", 1)]
        assert await world.record.types("decision", decision_id) == [
            "decision.opened",
            "decision.seated",
            "decision.voted",
            "decision.answered",
        ]


async def test_a_vote_repeated_on_both_replicas_is_one_vote(world: People) -> None:
    ana = await world.person("ana", "lead_dev")
    await world.person("ben", "lead_dev")
    decision_id, command_id = await world.ask_for(await world.run(), 2), uuid4()
    replies = await asyncio.gather(
        *(world.answer(decision_id, ana, command_id=command_id, replica=n) for n in (0, 1, 0, 1))
    )
    assert {(reply.state, reply.approvals, reply.needed) for reply in replies} == {("open", 1, 2)}
    with pytest.raises(Rejected) as caught:
        await world.answer(decision_id, ana)
    assert caught.value.code == "decision.voted"


async def test_no_vote_is_recorded_after_the_cancel_that_it_raced(world: People) -> None:
    async def cancel(run_id: UUID) -> None:
        now = await world.record.store.now()
        await world.record.plant(run.CATEGORY, run_id, RunCancelled(at=now, reason="no"))

    people = [await world.person(f"voter-{n}", "lead_dev") for n in range(3)]
    for _ in range(6):
        run_id = await world.run()
        decision_id = await world.ask_for(run_id, 3)
        votes = [world.answer(decision_id, person, replica=n % 2) for n, person in enumerate(people)]
        results = await asyncio.gather(*votes, cancel(run_id), return_exceptions=True)
        taken = [result for result in results if isinstance(result, DecisionAccepted)]
        facts = [
            (recorded.position, recorded.type)
            for category, stream_id in (("run", run_id), ("decision", decision_id))
            for recorded in (await world.record.store.load(category, {stream_id: 0})).streams[stream_id].events
        ]
        cancelled = next(position for position, type_ in facts if type_ == "run.cancelled")
        counted = [position for position, type_ in facts if type_ in {"decision.voted", "decision.answered"}]
        assert len(counted) == len(taken)
        assert all(position < cancelled for position in counted)


async def test_a_vote_and_the_withdrawal_that_it_races_leave_one_truth(world: People) -> None:
    ana, ben = await world.person("ana", "lead_dev"), await world.person("ben", "lead_dev")
    for _ in range(6):
        run_id = await world.run()
        decision_id = await world.ask_for(run_id, 2)
        await world.answer(decision_id, ana)
        now = await world.record.store.now()
        other = RunStepWaiting(at=now, step="approval", round=1, decision_id=uuid4(), artifact_step=None, artifact=None)
        await world.record.plant(run.CATEGORY, run_id, other)
        told = world.buses[1].tell("decision-history", "run.step_failed", run_id)
        vote, _ = await asyncio.gather(world.answer(decision_id, ben), told, return_exceptions=True)
        state = await world.decision(decision_id)
        if isinstance(vote, DecisionAccepted):
            assert (vote.state, state.status) == ("answered", "answered")
        else:
            assert isinstance(vote, MinutebookError)
            assert (vote.code, state.status) == ("decision.withdrawn", "withdrawn")


async def test_a_vote_and_the_escalation_that_it_races_are_both_recorded(world: People) -> None:
    ana, chief = await world.person("ana", "lead_dev"), await world.person("chief", "chief")
    hour = timedelta(hours=1)
    escalates = {"escalate_to": "chief", "escalate_binding": RoleBinding(roles=("chief",))}
    decision_id = await world.ask_for(
        await world.run(), 2, due_at=await world.record.store.now() + hour, due_seconds=3600.0, **escalates
    )
    await world.record.shift(hour)
    await world.buses[0].wake("decision", "decision", decision_id)
    await world.record.shift(hour)
    await asyncio.gather(world.answer(decision_id, ana), world.buses[1].wake("decision", "decision", decision_id))
    await world.buses[0].tell("decision-history", "decision.escalated", decision_id)
    state = await world.decision(decision_id)
    assert ([ballot.by.name for ballot in state.ballots], state.escalated_to) == ([ana.name], "chief")
    assert (await world.answer(decision_id, chief)).state == "answered"


async def test_one_who_leaves_is_made_up_for_by_those_who_hold_the_role_then(world: People) -> None:
    ana, ben = await world.person("ana", "lead_dev"), await world.person("ben", "lead_dev")
    decision_id = await world.ask_for(await world.run(), 2)
    await world.answer(decision_id, ana)
    late = await world.person("late", "lead_dev")
    await world.leave(ben)
    state = await world.decision(decision_id)
    assert (await world.record.types("decision", decision_id))[-1] == "decision.seated"
    assert {voter for seat in state.seats or () for voter in seat.voters} == {ana.id, late.id}
    assert (await world.answer(decision_id, late)).state == "answered"


async def test_a_seat_goes_to_somebody_who_is_there_and_sees_the_run(world: People) -> None:
    ana, ben = await world.person("ana", "lead_dev"), await world.person("ben", "lead_dev")
    dee = await world.person("dee")
    decision_id = await world.ask_for(await world.run(), 2)
    for unfit in (await world.person("far", projects=()), dee.model_copy(update={"id": uuid4()})):
        with pytest.raises(Rejected) as caught:
            await world.reassign(decision_id, unfit, ben)
        assert (caught.value.status, caught.value.code) == (422, "decision.not_reassigned")
    assert (await world.reassign(decision_id, dee, ben)).state == "open"
    await world.answer(decision_id, ana)
    assert (await world.answer(decision_id, dee)).state == "answered"


async def test_the_answer_to_a_question_fits_its_form(world: People) -> None:
    ana = await world.person("ana", "lead_dev")
    form = await world.record.keep(
        {"type": "object", "required": ["window"], "properties": {"window": {"enum": ["tonight", "sunday"]}}}
    )
    asked = {"question": "When?", "form": form, "outcomes": ("answer",), "artifact": None, "artifact_step": None}
    decision_id = await world.ask_for(await world.run(), 0, **asked)
    with pytest.raises(Rejected) as caught:
        await world.say(decision_id, ana, answer={"window": "never"})
    assert (caught.value.status, [item.path for item in caught.value.errors]) == (422, ["answer.window"])
    assert (await world.say(decision_id, ana, answer={"window": "sunday"})).outcome == "answer"
    state = await world.decision(decision_id)
    assert state.answer is not None
    blobs = await world.record.store.blobs(world.record.group, [state.answer.digest])
    assert blobs[state.answer.digest] == b'{"window":"sunday"}'


async def test_voters_are_named_by_the_clock_when_no_message_came(world: People) -> None:
    await world.person("ana", "lead_dev")
    decision_id = await world.ask_for(await world.run(), 1)
    await world.record.shift(timedelta(minutes=1))
    assert decision_id in await world.due()
    await world.buses[0].wake("decision", "decision", decision_id)
    assert await world.record.types("decision", decision_id) == ["decision.opened", "decision.seated"]
    assert await world.due() == []

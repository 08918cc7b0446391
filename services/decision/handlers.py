"""What the decision service does with an ask, with facts, and with wakes."""

from collections.abc import Collection, Mapping, Sequence
from typing import cast
from uuid import UUID

from contracts.commands import AnswerDecision, ReassignDecision
from contracts.commands import Command as AskedCommand
from contracts.envelope import Address
from contracts.errors import MinutebookError, Rejected
from contracts.replies import DecisionAccepted, DecisionChanged
from libs.canonical import blob
from libs.domain import run
from libs.domain.decision import CATEGORY, Answer, Command, Look, Reassign, Seating, State, Withdraw, tally
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.waiting import waits_for
from libs.eventstore.port import Store
from libs.eventstore.snapshots import read_states
from libs.owner import Item, Owner
from libs.process import actor
from minutebook.models.states import DecisionState
from services.decision.people import People, seats_of

_ACTOR = actor("decision")


class Handlers:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Command], store: Store, people: People) -> None:
        self._owner = owner
        self._store = store
        self._people = people

    async def answer(self, asked: AnswerDecision) -> DecisionAccepted:
        """Take an answer or a vote; the same command again gets the same reply.

        Raises:
            contracts.errors.Rejected: what `libs.domain.decision.decide` raises, ``decision.revision`` and
                ``decision.answer`` (422) with dotted paths when what was sent does not fit its schema, and
                ``append.guarded`` (409) when the run is suspended or over.
        """
        kept = [blob(value) for value in (asked.revised_artifact, asked.answer) if value is not None]
        refs = iter(ref for ref, _ in kept)
        command = Answer(
            command_id=asked.command_id,
            outcome=asked.outcome,
            comment=asked.comment,
            revised=next(refs) if asked.revised_artifact is not None else None,
            answer=next(refs) if asked.answer is not None else None,
            shown=asked.shown,
            blobs={ref.digest: content for ref, content in kept},
            principal=asked.principal,
        )
        state = await self._done(asked, asked.decision_id, command)
        counted = tally(state)
        open_ = state.status == "open"
        assert state.run_id is not None, "an answered decision belongs to a run"
        return DecisionAccepted(
            decision_id=asked.decision_id,
            run_id=state.run_id,
            outcome=asked.outcome if open_ else state.outcome or asked.outcome,
            revised=state.revised is not None,
            state="open" if open_ else "answered",
            approvals=counted.approvals if open_ or state.quorum is not None else int(state.outcome == "approve"),
            needed=counted.needed,
        )

    async def reassign(self, asked: ReassignDecision) -> DecisionChanged:
        """Let somebody answer in the place of another, or beside those who may.

        Raises:
            contracts.errors.Rejected: what `libs.domain.decision.decide` raises, and ``decision.not_reassigned`` when
                the other is no active user who sees the run.
        """
        command = Reassign(
            command_id=asked.command_id,
            principal=asked.principal,
            from_user=asked.from_user,
            to_user=asked.to_user,
            reason=asked.reason,
        )
        state = await self._done(asked, asked.decision_id, command)
        return DecisionChanged(decision_id=asked.decision_id, state=cast(DecisionState, state.status))

    async def _done(self, asked: AskedCommand, decision_id: UUID, command: Command) -> State:
        item: Item[Command] = Item(
            stream_id=decision_id,
            command=command,
            actor=asked.principal.actor,
            causation=asked.command_id,
            tenant_group=asked.principal.tenant_group,
            tenant=asked.principal.tenant,
            traceparent=asked.traceparent,
            deadline=asked.deadline,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            raise _as_if_absent(result)
        return result.state

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """Name voters, make up for one who left, or withdraw what nobody needs to answer now.

        Failures are by the stream or the run that a fact is about.
        """
        traces = {address.stream_id: address.traceparent for address in addresses}
        match type_:
            case "decision.opened" | "decision.escalated":
                items = [self._item(i, Seating(), i, trace) for i, trace in traces.items()]
                return _failures(items, await self._owner.handle(items))
            case "identity.user_deactivated":
                return await self._make_up(traces)
            case _:
                return await self._withdraw(traces)

    async def _make_up(self, left: Collection[UUID]) -> Mapping[UUID, MinutebookError]:
        """Seat anew where the votes that are needed could not come any more, now that somebody left."""
        users = (await self._store.load("identity", dict.fromkeys(left, 0))).streams
        groups = {stream.tenant_group for stream in users.values() if stream.tenant_group is not None}
        failures: dict[UUID, MinutebookError] = {}
        for group in groups:
            open_ = await self._store.open_decisions(group)
            states = await read_states(self._store, CATEGORY, open_, tenant_group=group)
            seated = {i: state for i, (_, state) in states.items() if not _voters(state).isdisjoint(left)}
            voters = {voter for state in seated.values() for voter in _voters(state)}
            active = {i for i, person in (await self._people.named(group, voters)).items() if person.active}
            there = await self._people.holding(group, seated.values())
            items = []
            for decision_id, state in seated.items():
                anew = Seating(seats=seats_of(state, there), gone=_voters(state) - active)
                items.append(self._item(decision_id, anew, decision_id))
            failed = _failures(items, await self._owner.handle(items))
            of_group = [user_id for user_id, stream in users.items() if stream.tenant_group == group]
            for error in failed.values():
                failures |= dict.fromkeys(of_group, error)
        return failures

    async def _withdraw(self, traces: Mapping[UUID, str | None]) -> Mapping[UUID, MinutebookError]:
        """Withdraw what runs do not wait for any more."""
        open_ = await self._store.heads_of_runs("decision", traces, states={"open"})
        gone = await self._gone({head.stream_id: head.run_id for head in open_ if head.run_id is not None})
        items = [self._item(i, command, run_id, traces.get(run_id)) for i, (run_id, command) in gone.items()]
        failures = _failures(items, await self._owner.handle(items))
        return {gone[decision_id][0]: error for decision_id, error in failures.items()}

    async def on_wake(self, _category: str, decision_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Name voters, remind and escalate what is due, withdraw what nobody waits for: nobody may have said so."""
        heads = await self._store.heads("decision", decision_ids)
        open_ = {i: head.run_id for i, head in heads.items() if head.state == "open" and head.run_id is not None}
        gone = await self._gone(open_)
        items = [self._item(i, command, run_id) for i, (run_id, command) in gone.items()]
        items += [self._item(i, Look(), i) for i in decision_ids if i not in gone]
        return _failures(items, await self._owner.handle(items))

    async def _gone(self, run_of: Mapping[UUID, UUID]) -> Mapping[UUID, tuple[UUID, Withdraw]]:
        """Which of these open decisions their runs do not wait for any more: decision → run, and how to say it."""
        heads = await self._store.heads("run", set(run_of.values()))
        over = {run_id: head.state for run_id, head in heads.items() if head.state not in RUN_OPEN}
        gone = {
            decision_id: (run_id, Withdraw(reason=f"the run was {over[run_id]}", run_over=True))
            for decision_id, run_id in run_of.items()
            if run_id in over
        }
        rest = {i: run_id for i, run_id in run_of.items() if run_id in heads and run_id not in over}
        if not rest:
            return gone
        runs = await read_states(self._store, run.CATEGORY, set(rest.values()))
        decisions = (await self._store.load("decision", dict.fromkeys(rest, 0))).streams
        for decision_id, run_id in rest.items():
            step = CATEGORY.fold(tuple(recorded.event for recorded in decisions[decision_id].events)).step
            _, its = runs[run_id]
            if not waits_for(its, step, decision_id):
                reason = f"step {step} does not wait for it any more: {_what_is(its.step(step))}"
                gone[decision_id] = (run_id, Withdraw(reason=reason, run_over=False))
        return gone

    @staticmethod
    def _item(decision_id: UUID, command: Command, causation: UUID, traceparent: str | None = None) -> Item[Command]:
        return Item(stream_id=decision_id, command=command, actor=_ACTOR, causation=causation, traceparent=traceparent)


def _voters(state: State) -> frozenset[UUID]:
    return frozenset(voter for seat in state.seats or () for voter in seat.voters)


def _failures(items: Sequence[Item[Command]], results: Sequence[object]) -> dict[UUID, MinutebookError]:
    looked = zip(items, results, strict=True)
    return {item.stream_id: result for item, result in looked if isinstance(result, MinutebookError)}


def _what_is(record: run.StepRecord) -> str:
    return f"it failed as {record.failure_class}" if record.status == "failed" else f"it is {record.status}"


def _as_if_absent(error: MinutebookError) -> MinutebookError:
    """Another tenant group's decision must look exactly as one that is not there."""
    if error.code == "stream.not_found":
        return Rejected("decision.not_found", "there is no such decision", status=404)
    return error

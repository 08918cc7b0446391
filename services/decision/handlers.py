"""What the decision service does with an ask, with the facts of runs, and with wakes."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.commands import AnswerDecision
from contracts.envelope import Address
from contracts.errors import MinutebookError, Rejected
from contracts.replies import DecisionAccepted
from libs.canonical import blob
from libs.domain import run
from libs.domain.decision import CATEGORY, Answer, Command, Look, State, Withdraw
from libs.domain.lifecycle import RUN_OPEN
from libs.domain.run.waiting import waits_for
from libs.eventstore.port import Store
from libs.eventstore.snapshots import read_states
from libs.owner import Item, Owner
from libs.process import actor

_ACTOR = actor("decision")


class Handlers:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Command], store: Store) -> None:
        self._owner = owner
        self._store = store

    async def answer(self, asked: AnswerDecision) -> DecisionAccepted:
        """Take an answer; the same command again gets the same reply.

        Raises:
            contracts.errors.Rejected: what `libs.domain.decision.decide` raises, ``decision.revision`` (422) with
                dotted paths when the revised artefact does not fit its schema, and ``append.guarded`` (409) when the
                run is suspended or over.
        """
        revised, blobs = None, {}
        if asked.revised_artifact is not None:
            revised, content = blob(asked.revised_artifact)
            blobs = {revised.digest: content}
        command = Answer(
            command_id=asked.command_id,
            outcome=asked.outcome,
            comment=asked.comment,
            revised=revised,
            blobs=blobs,
            principal=asked.principal,
        )
        item: Item[Command] = Item(
            stream_id=asked.decision_id,
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
        state = result.state
        assert state.run_id is not None
        assert state.outcome is not None
        return DecisionAccepted(
            decision_id=asked.decision_id,
            run_id=state.run_id,
            outcome=state.outcome,
            revised=state.revised is not None,
        )

    async def on_facts(self, _type: str, addresses: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """A run ended, or one of its steps failed: withdraw what nobody needs to answer now. Failures are by run."""
        traces = {address.stream_id: address.traceparent for address in addresses}
        open_ = await self._store.heads_of_runs("decision", traces, states={"open"})
        gone = await self._gone({head.stream_id: head.run_id for head in open_ if head.run_id is not None})
        items = [self._item(i, command, run_id, traces.get(run_id)) for i, (run_id, command) in gone.items()]
        failures = _failures(items, await self._owner.handle(items))
        return {gone[decision_id][0]: error for decision_id, error in failures.items()}

    async def on_wake(self, _category: str, decision_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Remind and escalate what is due, and withdraw what nobody waits for, though nobody may have said so."""
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

"""What the decision service does with an ask, with the facts of runs, and with wakes."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.commands import AnswerDecision
from contracts.envelope import Address
from contracts.errors import MinutebookError, Rejected
from contracts.replies import DecisionAccepted
from libs.canonical import blob
from libs.domain.decision import Answer, Command, Look, State, Withdraw
from libs.domain.lifecycle import RUN_OPEN
from libs.eventstore.port import Heads
from libs.owner import Item, Owner
from libs.process import actor

_ACTOR = actor("decision")


class Handlers:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Command], heads: Heads) -> None:
        self._owner = owner
        self._heads = heads

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

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """A run ended: withdraw what is still open of it. Failures are by run."""
        ended = {address.stream_id: address.traceparent for address in addresses}
        open_ = await self._heads.heads_of_runs("decision", ended, states={"open"})
        run_of = {head.stream_id: head.run_id for head in open_ if head.run_id is not None}
        return await self._withdraw(run_of, f"the run was {type_.removeprefix('run.')}", ended)

    async def on_wake(self, _category: str, decision_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Decisions wait on nobody's clock. One that is due was rebuilt: see whether its run is over meanwhile."""
        orphaned = await self._orphaned(decision_ids)
        failures = await self._withdraw(orphaned, "the run is over", {})
        others = [decision_id for decision_id in decision_ids if decision_id not in orphaned]
        results = await self._owner.handle([self._item(decision_id, Look(), decision_id) for decision_id in others])
        looked = zip(others, results, strict=True)
        return {**failures, **{i: result for i, result in looked if isinstance(result, MinutebookError)}}

    async def _orphaned(self, decision_ids: Sequence[UUID]) -> Mapping[UUID, UUID]:
        """Which of these decisions are open though their run is over, decision → run."""
        heads = await self._heads.heads("decision", decision_ids)
        open_ = {i: head.run_id for i, head in heads.items() if head.state == "open" and head.run_id is not None}
        runs = await self._heads.heads("run", set(open_.values()))
        return {i: run_id for i, run_id in open_.items() if run_id in runs and runs[run_id].state not in RUN_OPEN}

    async def _withdraw(
        self, run_of: Mapping[UUID, UUID], reason: str, traceparents: Mapping[UUID, str | None]
    ) -> dict[UUID, MinutebookError]:
        items = [
            self._item(decision_id, Withdraw(reason=reason), run_id, traceparents.get(run_id))
            for decision_id, run_id in run_of.items()
        ]
        results = await self._owner.handle(items)
        return {
            run_id: result
            for run_id, result in zip(run_of.values(), results, strict=True)
            if isinstance(result, MinutebookError)
        }

    @staticmethod
    def _item(decision_id: UUID, command: Command, causation: UUID, traceparent: str | None = None) -> Item[Command]:
        return Item(stream_id=decision_id, command=command, actor=_ACTOR, causation=causation, traceparent=traceparent)


def _as_if_absent(error: MinutebookError) -> MinutebookError:
    """Another tenant group's decision must look exactly as one that is not there."""
    if error.code == "stream.not_found":
        return Rejected("decision.not_found", "there is no such decision", status=404)
    return error

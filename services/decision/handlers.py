"""What the decision service does with an ask, with the facts of runs, and with wakes."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.commands import AnswerDecision
from contracts.envelope import Address
from contracts.errors import MinutebookError, Rejected
from contracts.replies import DecisionAccepted
from libs.canonical import blob
from libs.domain.decision import Answer, Command, Look, State, Withdraw
from libs.owner import Item, Owner
from libs.process import actor
from services.decision.queries import Queries

_ACTOR = actor("decision")


class Handlers:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Command], queries: Queries) -> None:
        self._owner = owner
        self._queries = queries

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
        open_ = await self._queries.open_of(ended)
        return await self._withdraw(open_, f"the run was {type_.removeprefix('run.')}", ended)

    async def on_wake(self, _category: str, decision_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Decisions wait on nobody's clock. One that is due was rebuilt: see whether its run is over meanwhile."""
        orphaned = await self._queries.orphaned(decision_ids)
        failures = await self._withdraw(orphaned, "the run is over", {})
        others = [decision_id for decision_id in decision_ids if decision_id not in orphaned]
        results = await self._owner.handle([self._item(decision_id, Look(), decision_id) for decision_id in others])
        looked = zip(others, results, strict=True)
        return {**failures, **{i: result for i, result in looked if isinstance(result, MinutebookError)}}

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

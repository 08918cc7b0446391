"""Decisions as the API shows them: what is asked, who has said what of it, and what differs."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from contracts.base import Principal
from contracts.errors import Broken, Rejected
from contracts.events.run import UserRef
from libs.domain import decision, identity
from libs.eventstore.port import EventStore
from minutebook.models import (
    ActorView,
    ApprovedView,
    DecisionAnswerView,
    DecisionSummary,
    DecisionView,
    Person,
    QuorumView,
    SeatView,
    VoteView,
)
from services.api.differences import differences
from services.api.reads import Histories, Reads, content_of, fold


class DecisionViews:
    """Callers have judged visibility by the head row before they ask."""

    def __init__(self, store: EventStore) -> None:
        self._reads = Reads(store)

    async def one(self, caller: Principal, decision_id: UUID) -> DecisionView:
        """A decision with what is decided on, the votes, and the answer when there is one."""
        histories = await self._histories(caller, [decision_id])
        if decision_id not in histories:
            raise Rejected("decision.not_found", f"there is no decision {decision_id}", status=404)
        state = fold(decision.CATEGORY, histories[decision_id])
        previous = state.previous
        refs = [state.artifact, state.revised, state.form, state.answer, previous.artifact if previous else None]
        content = await self._reads.contents(caller.tenant_group, refs)
        shown, before = content_of(content, state.shown), None
        if previous is not None:
            before = content_of(content, previous.artifact)
        elif state.revised is not None:
            before = content_of(content, state.artifact)
        return DecisionView.model_validate(
            {
                **summary(caller, decision_id, state),
                "initiated_by": _initiator(state),
                "artifact": content_of(content, state.artifact),
                "artifact_digest": state.artifact.digest if state.artifact else None,
                "revised_artifact": content_of(content, state.revised),
                "shown_digest": state.shown.digest if state.shown else None,
                "form": content_of(content, state.form),
                "answer": _answer(state, content_of(content, state.answer)),
                "withdrawn_because": state.withdrawn_because,
                "quorum": await self._quorum(caller, state),
                "votes": _votes(state),
                "not_for": tuple(dict.fromkeys(barred.rule for barred in state.barred)),
                "previous": ApprovedView(
                    artifact=before, by=ActorView.model_validate(previous.by.model_dump()), at=previous.answered_at
                )
                if previous is not None
                else None,
                "differences": differences(before, shown) if before is not None else (),
            }
        )

    async def summaries(self, caller: Principal, decision_ids: Collection[UUID]) -> Mapping[UUID, DecisionSummary]:
        """Decisions by id, without artefacts."""
        histories = await self._histories(caller, decision_ids)
        return {
            decision_id: DecisionSummary.model_validate(summary(caller, decision_id, fold(decision.CATEGORY, history)))
            for decision_id, history in histories.items()
        }

    async def _histories(self, caller: Principal, decision_ids: Collection[UUID]) -> Histories:
        return await self._reads.histories(decision.CATEGORY.name, caller.tenant_group, decision_ids)

    async def _quorum(self, caller: Principal, state: decision.State) -> QuorumView | None:
        quorum = state.quorum
        if quorum is None:
            return None
        seats = state.seats or ()
        people = await self._people(caller, {voter for seat in seats for voter in seat.voters})
        shown = {voter: Person(id=voter, email=person.email) for voter, person in people.items()}
        free = {voter for voter, person in people.items() if _may_answer(caller, voter, person, state)}
        need = {group.role: group.need for group in quorum.groups}
        count = decision.tally(state)
        return QuorumView(
            need=quorum.need,
            distinct=quorum.distinct,
            veto=quorum.veto,
            missing=count.missing,
            seats=tuple(
                SeatView(
                    role=seat.role,
                    need=need.get(seat.role),
                    missing=count.missing_of.get(seat.role, 0),
                    voters=tuple(shown[voter] for voter in seat.voters if voter in shown),
                    may_answer=tuple(shown[voter] for voter in seat.voters if voter in free),
                )
                for seat in seats
            ),
        )

    async def _people(self, caller: Principal, user_ids: Collection[UUID]) -> Mapping[UUID, identity.State]:
        found = await self._reads.histories(identity.CATEGORY.name, caller.tenant_group, user_ids)
        return {user_id: fold(identity.CATEGORY, history) for user_id, history in found.items()}


def _may_answer(caller: Principal, voter: UUID, person: identity.State, state: decision.State) -> bool:
    """Whether the decider would take a vote of this person now."""
    if state.status != "open" or not person.active:
        return False
    principal = identity.as_principal(voter, person, tenant_group=caller.tenant_group, tenant=caller.tenant)
    return decision.may_answer(principal, state)


def summary(caller: Principal, decision_id: UUID, state: decision.State) -> dict[str, Any]:
    """What every view of a decision shows."""
    count = decision.tally(state)
    return {
        "decision_id": decision_id,
        "run_id": state.run_id,
        "definition_id": state.definition_id,
        "project_id": state.project_id,
        "step": state.step,
        "title": state.title,
        "round": state.round,
        "role": state.role,
        "outcomes": state.outcomes,
        "state": state.status,
        "opened_at": state.opened_at,
        "kind": state.kind,
        "due_at": state.due_at,
        "until": state.until,
        "escalated_to": state.escalated_to,
        "artifact_step": state.artifact_step,
        "question": state.question,
        "approvals": count.approvals if state.quorum is not None else int(state.outcome == "approve"),
        "needed": count.needed,
        "may_answer": state.status == "open" and decision.may_answer(caller, state),
    }


def _initiator(state: decision.State) -> Person:
    if state.initiated_by is None:
        raise Broken("stream.no_birth", "a history does not begin with its birth")
    return Person(id=state.initiated_by.id, email=state.initiated_by.email)


def _answer(state: decision.State, value: Any) -> DecisionAnswerView | None:
    if state.by is None or state.outcome is None or state.answered_at is None:
        return None
    return DecisionAnswerView(
        outcome=state.outcome,
        by=ActorView.model_validate(state.by.model_dump()),
        on_behalf_of=_person(state.on_behalf_of),
        at=state.answered_at,
        comment=state.comment,
        revised=state.revised is not None,
        value=value,
    )


def _votes(state: decision.State) -> tuple[VoteView, ...]:
    return tuple(
        VoteView(
            outcome=ballot.outcome,
            by=ActorView.model_validate(ballot.by.model_dump()),
            on_behalf_of=_person(ballot.on_behalf_of),
            at=ballot.voted_at,
            comment=ballot.comment,
        )
        for ballot in state.ballots
    )


def _person(user: UserRef | None) -> Person | None:
    return None if user is None else Person(id=user.id, email=user.email)

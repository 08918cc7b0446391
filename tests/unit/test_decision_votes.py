"""Given facts, when a command, then facts: quorums, four eyes, delegates, revisions and questions."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.base import ActsFor, Event, Principal
from contracts.errors import Rejected
from contracts.events import decision as e
from contracts.events.run import RoleBinding, UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.core import NOTHING, Decided, Guard
from libs.domain.decision import CATEGORY, Answer, Look, Reassign, Seating, State, decide, may_answer, tally
from minutebook.models.states import DecisionOutcome
from tests.unit.test_decision import ARTIFACT, INITIATOR, NOW, REVISED, REVISED_BYTES, RUN, opened

LEAD, SECURITY = RoleBinding(roles=("lead",)), RoleBinding(roles=("security",))
AGAIN, AGAIN_BYTES = blob({"title": "As it should be by now"})
GROUP, TENANT = uuid4(), uuid4()


def person(name: str, *roles: str, acts_for: tuple[ActsFor, ...] = ()) -> Principal:
    return Principal(
        kind="user",
        id=UUID(int=sum(map(ord, name))),
        name=f"{name}@example.com",
        tenant_group=GROUP,
        tenant=TENANT,
        roles=frozenset(roles),
        projects=frozenset({"core"}),
        acts_for=acts_for,
    )


ANA, BEN, CLEO = person("ana", "lead"), person("ben", "lead"), person("cleo", "lead")
SAM = person("sam", "security")
OTHER = person("other", "lead")


def lends(principal: Principal, *named: str) -> ActsFor:
    """The principal as somebody who lets another one decide for it."""
    return ActsFor(
        id=principal.id,
        email=principal.name,
        named=frozenset(named),
        roles=principal.roles,
        groups=principal.groups,
        projects=principal.projects,
    )


def quorum(need: int = 2, *, security: int = 0, distinct: bool = True, veto: Any = "any", **changes: object) -> Event:
    groups = (e.QuorumGroup(role="security", binding=SECURITY, need=security),) if security else ()
    return opened(
        role="lead", binding=LEAD, quorum=e.Quorum(need=need, distinct=distinct, groups=groups, veto=veto), **changes
    )


def seated(*people: Principal, reason: Any = "opened") -> e.DecisionSeated:
    roles: dict[str, list[UUID]] = {"lead": [], "security": []}
    for one in people or (ANA, BEN, CLEO, SAM):
        for role in one.roles & roles.keys():
            roles[role].append(one.id)
    return e.DecisionSeated(
        at=NOW, reason=reason, seats=tuple(e.Seat(role=role, voters=tuple(v)) for role, v in roles.items() if v)
    )


def vote(by: Principal, outcome: DecisionOutcome = "approve", **changes: Any) -> Answer:
    values: dict[str, Any] = {"command_id": uuid4(), "outcome": outcome, "comment": None, "revised": None, "blobs": {}}
    return Answer.model_validate({**values, "principal": by, **changes})


def revising(by: Principal, outcome: DecisionOutcome = "approve", **changes: Any) -> Answer:
    return vote(by, outcome, revised=REVISED, blobs={REVISED.digest: REVISED_BYTES}, **changes)


class Given:
    """A decision that commands are given to, one after the other."""

    def __init__(self, *events: Event) -> None:
        self.state = CATEGORY.fold(events)

    def when(self, command: Any, at: datetime = NOW) -> list[str]:
        decided = self.decided(command, at)
        self.state = CATEGORY.fold(decided.events, self.state)
        return [type(event).__name__.removeprefix("Decision") for event in decided.events]

    def decided(self, command: Any, at: datetime = NOW) -> Decided:
        return decide(command, self.state, at)

    def refused(self, command: Any, at: datetime = NOW) -> tuple[int, str]:
        with pytest.raises(Rejected) as caught:
            decide(command, self.state, at)
        return caught.value.status, caught.value.code


def test_the_last_approval_that_is_needed_answers_it_and_names_all_votes() -> None:
    given = Given(quorum(), seated())
    assert given.when(vote(ANA)) == ["Voted"]
    assert (given.state.status, tally(given.state).approvals) == ("open", 1)
    decided = given.decided(vote(BEN))
    (answered,) = decided.events
    assert isinstance(answered, e.DecisionAnswered)
    assert [v.by.name for v in answered.votes] == ["ana@example.com", "ben@example.com"]
    assert decided.guards == (Guard("run", RUN, lifecycle.RUN_ACTIVE),)


def test_a_vote_repeated_by_its_command_is_counted_once_and_another_is_refused() -> None:
    given, first = Given(quorum(), seated()), vote(ANA)
    given.when(first)
    assert given.decided(first) == NOTHING
    assert given.refused(vote(ANA)) == (409, "decision.voted")
    assert not may_answer(ANA, given.state)
    assert may_answer(BEN, given.state)


def test_a_group_has_its_own_approvals() -> None:
    given = Given(quorum(2, security=1), seated())
    assert given.when(vote(ANA)) == ["Voted"]
    assert given.when(vote(BEN)) == ["Voted"], "two leads are not one of security"
    assert tally(given.state).missing_of == {"security": 1}
    assert given.when(vote(SAM)) == ["Answered"]


def test_one_who_holds_two_roles_counts_for_both_and_once_in_all() -> None:
    both = person("both", "lead", "security")
    given = Given(quorum(2, security=1), seated(ANA, both))
    assert given.when(vote(both)) == ["Voted"]
    assert tally(given.state).missing == 1
    assert given.when(vote(ANA)) == ["Answered"]


def test_any_veto_ends_it() -> None:
    given = Given(quorum(), seated())
    given.when(vote(ANA))
    assert given.when(vote(BEN, "reject")) == ["Answered"]
    assert (given.state.outcome, len(given.state.ballots)) == ("reject", 2)


def test_without_a_veto_it_ends_when_the_approvals_cannot_come_any_more() -> None:
    given = Given(quorum(veto="none"), seated(ANA, BEN, CLEO))
    assert given.when(vote(ANA, "request_changes")) == ["Voted"]
    assert given.when(vote(BEN, "request_changes")) == ["Answered"]
    assert given.state.outcome == "request_changes"


def test_a_tie_of_those_who_did_not_approve_is_a_rejection() -> None:
    given = Given(quorum(3, veto="none"), seated(ANA, BEN, CLEO, SAM))
    assert given.when(vote(ANA, "request_changes")) == ["Voted"]
    assert given.when(vote(BEN, "reject")) == ["Answered"]
    assert given.state.outcome == "reject"


def test_a_last_approval_may_be_the_vote_that_ends_it_as_a_refusal() -> None:
    given = Given(quorum(2, security=1, veto="none"), seated(ANA, SAM))
    assert given.when(vote(SAM, "request_changes")) == ["Answered"], "security had one voter"
    assert (given.state.outcome, given.state.ballots[-1].outcome) == ("request_changes", "request_changes")


def test_too_few_voters_do_not_make_a_refusal_of_an_approval() -> None:
    given = Given(quorum(3, veto="none"), seated(ANA, BEN))
    assert given.when(vote(ANA)) == ["Voted"]
    assert given.when(vote(BEN)) == ["Voted"]
    assert given.state.status == "open", "an administrator may put somebody beside them"


def test_voters_are_named_with_the_first_vote_where_nobody_was_before() -> None:
    given = Given(quorum())
    assert CATEGORY.wake_at(given.state, NOW) is not None, "a lost message does not leave it without voters"
    assert given.when(vote(ANA, seats=seated().seats)) == ["Seated", "Voted"]
    assert given.refused(vote(OTHER)) == (403, "decision.not_yours")
    assert CATEGORY.wake_at(given.state, NOW) is None
    assert given.when(Seating(seats=seated(ANA, BEN, OTHER).seats)) == [], "they stay as they are"


def test_looking_names_the_voters_too() -> None:
    given = Given(quorum())
    assert given.when(Look(seats=seated().seats)) == ["Seated"]
    assert given.when(Look()) == []


def test_a_voter_who_leaves_is_made_up_for_when_too_few_are_left() -> None:
    given = Given(quorum(), seated(ANA, BEN, CLEO))
    gone = frozenset({CLEO.id})
    now = seated(ANA, BEN, OTHER).seats
    assert given.when(Seating(seats=now, gone=gone)) == [], "two are left, and two are needed"
    given.when(vote(ANA))
    assert given.when(Seating(seats=now, gone=frozenset({BEN.id, CLEO.id}))) == ["Seated"]
    assert given.when(vote(OTHER)) == ["Answered"]


def test_a_vote_of_one_who_left_still_counts() -> None:
    given = Given(quorum(), seated(ANA, BEN))
    given.when(vote(ANA))
    gone = frozenset({ANA.id, BEN.id})
    assert given.when(Seating(seats=seated(OTHER).seats, gone=gone)) == ["Seated"]
    assert given.when(vote(OTHER)) == ["Answered"]


def test_a_revision_wipes_the_votes_and_is_voted_on() -> None:
    given = Given(quorum(), seated())
    given.when(vote(ANA))
    decided = given.decided(revising(BEN))
    revised, voted = decided.events
    assert isinstance(revised, e.DecisionRevised)
    assert (revised.artifact, revised.revised, revised.wiped) == (ARTIFACT, REVISED, 1)
    assert isinstance(voted, e.DecisionVoted)
    assert voted.artifact == REVISED
    assert decided.blobs == {REVISED.digest: REVISED_BYTES}
    given.when(revising(BEN))
    assert given.state.shown == REVISED
    assert given.refused(vote(CLEO, shown=ARTIFACT.digest)) == (409, "decision.stale")
    assert given.when(vote(ANA, shown=REVISED.digest)) == ["Answered"], "who was wiped votes on the revision"
    assert (given.state.artifact, given.state.revised) == (ARTIFACT, REVISED)


def test_a_revision_that_needs_no_other_vote_is_the_answer() -> None:
    given = Given(quorum(1), seated())
    assert given.when(revising(ANA)) == ["Answered"]
    assert given.state.revised == REVISED


def test_a_revision_that_is_the_answer_wipes_the_votes_before_it() -> None:
    given = Given(quorum(1, veto="none"), seated(ANA, BEN))
    assert given.when(vote(BEN, "request_changes")) == ["Voted"]
    assert given.when(revising(ANA)) == ["Answered"]
    assert [(ballot.by.id, ballot.outcome) for ballot in given.state.ballots] == [(ANA.id, "approve")]
    assert given.state.revisers == (ANA.id,)


def test_changes_that_end_it_with_a_revision_wipe_no_vote() -> None:
    given = Given(quorum(2), seated(ANA, BEN))
    given.when(vote(BEN))
    assert given.when(revising(ANA, "request_changes")) == ["Answered"]
    assert [ballot.by.id for ballot in given.state.ballots] == [BEN.id, ANA.id]


def test_what_is_revised_to_what_is_shown_is_no_revision() -> None:
    given = Given(quorum(), seated())
    given.when(vote(ANA))
    same = vote(BEN, revised=ARTIFACT, blobs={ARTIFACT.digest: b"{}"})
    assert given.when(same) == ["Answered"]
    assert given.state.revised is None


def test_a_vote_for_changes_carries_a_revision_only_where_it_ends_the_decision() -> None:
    assert Given(quorum(veto="none"), seated()).refused(revising(ANA, "request_changes")) == (422, "decision.revision")
    given = Given(quorum(), seated())
    assert given.when(revising(ANA, "request_changes")) == ["Answered"]


def test_four_eyes_bar_the_initiator_the_reviser_and_who_decided_before() -> None:
    bars = (
        e.Barred(rule="initiator", user=ANA.id),
        e.Barred(rule="design_review", user=BEN.id),
        e.Barred(rule="reviser", user=None),
    )
    given = Given(opened(role="lead", binding=LEAD, barred=bars))
    assert given.refused(vote(ANA)) == (403, "decision.barred")
    with pytest.raises(Rejected, match="design_review"):
        decide(vote(BEN), given.state, NOW)
    assert given.when(revising(CLEO)) == ["Revised"], "whoever revises leaves the answer to another one"
    assert given.state.status == "open"
    assert given.refused(vote(CLEO)) == (403, "decision.barred")
    assert not may_answer(CLEO, given.state)
    assert given.when(vote(OTHER)) == ["Answered"]
    assert given.state.revised == REVISED


def test_a_revision_after_which_nobody_could_approve_is_refused() -> None:
    given = Given(quorum(2, barred=(e.Barred(rule="reviser", user=None),)), seated(ANA, BEN))
    assert given.refused(revising(ANA)) == (422, "decision.revision")


def test_everybody_who_revised_is_barred_from_the_revision() -> None:
    given = Given(quorum(2, barred=(e.Barred(rule="reviser", user=None),)), seated(ANA, BEN, CLEO, OTHER))
    assert given.when(revising(ANA)) == ["Revised"]
    again = vote(BEN, revised=AGAIN, blobs={AGAIN.digest: AGAIN_BYTES})
    assert given.when(again) == ["Revised"]
    assert given.refused(vote(ANA)) == (403, "decision.barred")
    assert given.when(vote(CLEO)) == ["Voted"]
    assert given.when(vote(OTHER)) == ["Answered"]
    assert given.state.revised == AGAIN


def test_a_delegate_answers_for_another_and_both_are_recorded() -> None:
    dee = person("dee", acts_for=(lends(ANA),))
    given = Given(opened(role="lead", binding=LEAD))
    assert may_answer(dee, given.state)
    (answered,) = given.decided(vote(dee)).events
    assert isinstance(answered, e.DecisionAnswered)
    assert (answered.by.name, answered.on_behalf_of) == ("dee@example.com", UserRef(id=ANA.id, email=ANA.name))


def test_a_delegate_has_only_the_roles_that_were_named() -> None:
    given = Given(opened(role="lead", binding=LEAD))
    assert given.refused(vote(person("dee", acts_for=(lends(ANA, "security"),)))) == (403, "decision.not_yours")
    assert given.when(vote(person("dee", acts_for=(lends(ANA, "lead"),)))) == ["Answered"]


def test_a_delegate_sees_a_decision_that_the_other_one_sees() -> None:
    stranger = person("dee", acts_for=(lends(ANA),)).model_copy(update={"projects": frozenset()})
    assert Given(opened(role="lead", binding=LEAD)).when(vote(stranger)) == ["Answered"]
    alone = stranger.model_copy(update={"acts_for": ()})
    assert Given(opened(role="lead", binding=LEAD)).refused(vote(alone)) == (404, "decision.not_found")


def test_four_eyes_are_judged_against_the_delegate_and_the_person_acted_for() -> None:
    bars = (e.Barred(rule="initiator", user=ANA.id),)
    given = Given(opened(role="lead", binding=LEAD, barred=bars))
    assert given.refused(vote(person("dee", acts_for=(lends(ANA),)))) == (403, "decision.barred")
    barred_delegate = ANA.model_copy(update={"roles": frozenset(), "acts_for": (lends(BEN),)})
    assert given.refused(vote(barred_delegate)) == (403, "decision.barred")
    assert given.when(vote(person("dee", acts_for=(lends(ANA), lends(BEN))))) == ["Answered"]
    assert given.state.on_behalf_of is not None
    assert given.state.on_behalf_of.id == BEN.id


def test_a_person_votes_once_however_many_let_them_vote_for_them() -> None:
    ana = ANA.model_copy(update={"acts_for": (lends(BEN),)})
    given = Given(quorum(2), seated(ANA, BEN, CLEO))
    given.when(vote(ana))
    assert given.refused(vote(ana)) == (409, "decision.voted")
    assert given.when(vote(BEN)) == ["Answered"], "Ben has his own vote still"


def test_where_votes_need_not_be_distinct_a_delegate_votes_for_each() -> None:
    ana = ANA.model_copy(update={"acts_for": (lends(BEN),)})
    given = Given(quorum(2, distinct=False), seated(ANA, BEN, CLEO))
    assert given.when(vote(ana)) == ["Voted"]
    assert given.when(vote(ana)) == ["Answered"]
    assert [ballot.on_behalf_of is not None for ballot in given.state.ballots] == [False, True]


def test_a_voter_whose_delegate_has_voted_hears_so() -> None:
    dee = person("dee", acts_for=(lends(ANA),))
    given = Given(quorum(2), seated(ANA, BEN, CLEO))
    given.when(vote(dee))
    with pytest.raises(Rejected, match=r"dee@example.com voted approve for ana@example.com"):
        decide(vote(ANA), given.state, NOW)


ADMIN = person("admin", "platform_admin")


def moved(to: Principal, from_: Principal | None = None, by: Principal = ADMIN) -> Reassign:
    return Reassign(
        command_id=uuid4(),
        principal=by,
        from_user=from_.id if from_ else None,
        to_user=UserRef(id=to.id, email=to.name),
        reason="on leave",
    )


def test_reassigning_puts_one_in_the_place_of_another() -> None:
    dee = person("dee")
    given, command = Given(opened(role="lead", binding=LEAD)), moved(dee, ANA)
    assert given.when(command) == ["Reassigned"]
    assert given.decided(command) == NOTHING
    assert given.refused(vote(ANA)) == (403, "decision.not_yours")
    assert given.when(vote(dee)) == ["Answered"]


def test_reassigning_is_for_administrators_and_keeps_four_eyes() -> None:
    given = Given(opened(role="lead", binding=LEAD, barred=(e.Barred(rule="initiator", user=CLEO.id),)))
    assert given.refused(moved(BEN, ANA, by=ANA)) == (403, "decision.not_yours")
    assert given.refused(moved(CLEO)) == (409, "decision.not_reassigned")
    assert given.refused(moved(ANA, ANA)) == (409, "decision.not_reassigned")
    given.when(vote(ANA))
    assert given.refused(moved(BEN)) == (409, "decision.answered")


def test_a_seat_is_moved_unless_its_vote_was_cast() -> None:
    dee, given = person("dee"), Given(quorum(2), seated(ANA, BEN))
    given.when(vote(ANA))
    assert given.refused(moved(dee, ANA)) == (409, "decision.not_reassigned")
    assert given.refused(moved(ANA, BEN)) == (409, "decision.not_reassigned")
    assert given.refused(moved(dee, CLEO)) == (409, "decision.not_reassigned")
    assert given.when(moved(dee, BEN)) == ["Reassigned"]
    assert given.refused(vote(BEN)) == (403, "decision.not_yours")
    assert given.when(vote(dee)) == ["Answered"]


def test_somebody_put_beside_the_voters_votes_as_one_of_them() -> None:
    dee, given = person("dee"), Given(quorum(3), seated(ANA, BEN))
    assert given.when(moved(dee)) == ["Reassigned"]
    for voter in (ANA, BEN):
        assert given.when(vote(voter)) == ["Voted"]
    assert given.when(vote(dee)) == ["Answered"]


def test_an_answer_binds_to_what_was_shown() -> None:
    given = Given(opened())
    with pytest.raises(Rejected) as caught:
        decide(vote(ANA.model_copy(update={"roles": frozenset({"project_manager"})}), shown="0" * 64), given.state, NOW)
    assert (caught.value.code, caught.value.extra) == ("decision.stale", {"shown": ARTIFACT.digest})


FORM, _ = blob({"type": "object"})
SAID, SAID_BYTES = blob({"answer": "tonight"})
ASKED = opened(
    role="lead", binding=LEAD, outcomes=("answer", "reject"), question="When?", form=FORM, artifact=None,
    artifact_step=None,
)  # fmt: skip


def test_a_question_is_answered_with_an_object() -> None:
    given = Given(ASKED)
    assert given.refused(vote(ANA, "answer")) == (422, "decision.answer")
    assert given.refused(vote(ANA, "reject", answer=SAID)) == (422, "decision.answer")
    assert given.refused(vote(ANA, "approve")) == (422, "decision.outcome")
    decided = given.decided(vote(ANA, "answer", answer=SAID, blobs={SAID.digest: SAID_BYTES}))
    (answered,) = decided.events
    assert isinstance(answered, e.DecisionAnswered)
    assert (answered.answer, decided.blobs) == (SAID, {SAID.digest: SAID_BYTES})
    assert Given(ASKED).when(vote(ANA, "reject")) == ["Answered"]


def test_past_its_timeout_nobody_answers_and_its_owner_looks() -> None:
    until = NOW + timedelta(hours=3)
    given = Given(opened(role="lead", binding=LEAD, until=until))
    assert CATEGORY.wake_at(given.state, NOW) == until
    assert given.refused(vote(ANA), at=until) == (409, "decision.timed_out")
    assert given.decided(vote(ANA)).deadline == until, "an answer that is written late is not written"
    assert given.when(vote(ANA), at=until - timedelta(microseconds=1)) == ["Answered"]


CHIEF = person("chief", "chief")


def test_an_escalated_quorum_has_the_voters_of_the_second_role_too() -> None:
    escalates: dict[str, Any] = {"escalate_to": "chief", "escalate_binding": RoleBinding(roles=("chief",))}
    day = timedelta(days=1)
    given = Given(quorum(due_at=NOW + day, due_seconds=day.total_seconds(), **escalates), seated(ANA, BEN))
    given.when(vote(ANA))
    assert given.when(Look(), at=NOW + day) == ["Reminded"]
    assert given.when(Look(), at=NOW + 2 * day) == ["Escalated"]
    holders = (*seated(ANA, BEN, OTHER).seats, e.Seat(role="chief", voters=(CHIEF.id,)))
    assert given.when(vote(CHIEF, seats=holders), at=NOW + 2 * day) == ["Seated", "Answered"]
    assert given.state.seats is not None
    assert OTHER.id not in given.state.seats[0].voters, "the first role's voters stay as they were named"


def test_an_unseated_quorum_is_never_judged_without_looking_who_votes() -> None:
    with pytest.raises(Exception, match="nobody looked"):
        decide(vote(ANA), CATEGORY.fold((quorum(),)), NOW)


def test_the_state_of_nothing_has_one_approval_to_come() -> None:
    assert (tally(State()).needed, tally(State()).missing) == (1, 1)
    assert INITIATOR.id not in {ANA.id, BEN.id}
    assert NOW.tzinfo is UTC

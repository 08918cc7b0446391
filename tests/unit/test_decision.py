"""Given facts, when a command, then facts: decisions."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from contracts.base import Event, Principal
from contracts.errors import Rejected
from contracts.events.decision import (
    DecisionAnswered,
    DecisionEscalated,
    DecisionOpened,
    DecisionReminded,
    DecisionWithdrawn,
)
from contracts.events.run import RoleBinding, UserRef
from libs.canonical import blob
from libs.domain import lifecycle
from libs.domain.access import escalation_binding, holds, is_administrator, sees_run
from libs.domain.core import NOTHING, Guard
from libs.domain.decision import CATEGORY, Answer, Look, State, Withdraw, decide
from minutebook.models.states import DecisionOutcome

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
RUN, GROUP, TENANT = uuid4(), uuid4(), uuid4()
INITIATOR = UserRef(id=uuid4(), email="sam@example.com")
ARTIFACT, _ = blob({"title": "As it was"})
REVISED, REVISED_BYTES = blob({"title": "As it should be"})


def opened(**changes: object) -> DecisionOpened:
    return DecisionOpened(
        at=NOW,
        run_id=RUN,
        definition_id="core-dev",
        step="po_review",
        title="Product owner",
        round=1,
        role="product_owner",
        binding=RoleBinding(roles=("project_manager",), groups=("business-users",)),
        outcomes=("approve", "request_changes", "reject"),
        artifact_step="story_analysis",
        artifact=ARTIFACT,
        initiated_by=INITIATOR,
        project_id="core",
    ).model_copy(update=changes)


def principal(
    *, id_: UUID | None = None, roles: tuple[str, ...] = (), groups: tuple[str, ...] = (), project: str | None = "core"
) -> Principal:
    return Principal(
        kind="user",
        id=id_ or uuid4(),
        name="priya@example.com",
        tenant_group=GROUP,
        tenant=TENANT,
        roles=frozenset(roles),
        groups=frozenset(groups),
        projects=frozenset({project} if project else ()),
    )


MANAGER = principal(roles=("project_manager",))


def answer(
    by: Principal = MANAGER,
    outcome: DecisionOutcome = "approve",
    *,
    command_id: UUID | None = None,
    revised: bool = False,
) -> Answer:
    return Answer(
        command_id=command_id or uuid4(),
        outcome=outcome,
        comment=None,
        revised=REVISED if revised else None,
        blobs={REVISED.digest: REVISED_BYTES} if revised else {},
        principal=by,
    )


def given(*events: Event) -> State:
    return CATEGORY.fold(events)


def refused(command: Answer, state: State) -> Rejected:
    with pytest.raises(Rejected) as caught:
        decide(command, state, NOW)
    return caught.value


def test_an_answer_names_the_principal_and_is_guarded_by_its_run() -> None:
    command = answer()
    decided = decide(command, given(opened()), NOW)
    (event,) = decided.events
    assert isinstance(event, DecisionAnswered)
    assert event.by == MANAGER.actor
    assert event.command_id == command.command_id
    assert event.artifact == ARTIFACT
    assert decided.guards == (Guard("run", RUN, lifecycle.RUN_ACTIVE),)


def test_a_group_gives_the_role_as_well() -> None:
    assert decide(answer(principal(groups=("business-users",))), given(opened()), NOW).events


@pytest.mark.parametrize(
    "outsider", [principal(project=None, roles=("project_manager",)), principal(project="other")], ids=["role", "none"]
)
def test_who_cannot_see_the_run_finds_no_decision(outsider: Principal) -> None:
    unseen, absent = refused(answer(outsider), given(opened())), refused(answer(outsider), State())
    assert (unseen.status, unseen.code, unseen.message) == (absent.status, absent.code, absent.message)
    assert (unseen.status, unseen.code) == (404, "decision.not_found")


def test_an_administrator_sees_but_does_not_hold_the_role() -> None:
    error = refused(answer(principal(roles=("platform_admin",), project=None)), given(opened()))
    assert (error.status, error.code, error.extra) == (403, "decision.not_yours", {"role": "product_owner"})
    assert "product_owner" in error.message


def test_the_initiator_sees_the_run_without_its_project() -> None:
    assert refused(answer(principal(id_=INITIATOR.id, project=None)), given(opened())).status == 403


def test_the_same_command_again_is_the_same_answer() -> None:
    command = answer()
    first = decide(command, given(opened()), NOW)
    assert decide(command, given(opened(), *first.events), NOW + timedelta(hours=1)) == NOTHING


def test_a_second_answer_hears_who_was_first() -> None:
    first = decide(answer(), given(opened()), NOW)
    error = refused(answer(outcome="reject"), given(opened(), *first.events))
    assert (error.status, error.code) == (409, "decision.answered")
    assert error.extra == {"who": "priya@example.com", "when": NOW.isoformat(), "outcome": "approve"}


def test_a_withdrawn_decision_cannot_be_answered() -> None:
    error = refused(answer(), given(opened(), DecisionWithdrawn(at=NOW, reason="run cancelled")))
    assert (error.status, error.code) == (409, "decision.withdrawn")


def test_an_outcome_that_is_not_offered() -> None:
    error = refused(answer(outcome="cancel"), given(opened()))
    assert (error.status, error.code) == (422, "decision.outcome")
    assert "approve, request_changes, reject" in error.message


def test_a_revision_is_kept_beside_what_was_shown() -> None:
    decided = decide(answer(revised=True), given(opened()), NOW)
    state = CATEGORY.fold(decided.events, given(opened()))
    assert (state.artifact, state.revised) == (ARTIFACT, REVISED)
    assert decided.blobs == {REVISED.digest: REVISED_BYTES}


@pytest.mark.parametrize(
    ("command", "state"),
    [
        (answer(outcome="reject", revised=True), given(opened())),
        (answer(revised=True), given(opened(artifact=None, artifact_step=None))),
    ],
    ids=["without approval", "without artefact"],
)
def test_a_revision_needs_an_approval_and_an_artefact(command: Answer, state: State) -> None:
    error = refused(command, state)
    assert (error.status, error.code) == (422, "decision.revision")


def test_withdrawing_happens_once_and_only_while_open() -> None:
    decided = decide(Withdraw(reason="the run was cancelled", run_over=True), given(opened()), NOW)
    assert decided.events == (DecisionWithdrawn(at=NOW, reason="the run was cancelled"),)
    assert decided.guards == (Guard("run", RUN, frozenset({"completed", "failed", "cancelled", "superseded"})),)
    assert decide(Withdraw(reason="its step failed", run_over=False), given(opened()), NOW).guards == ()
    for state in (
        State(),
        given(opened(), *decided.events),
        given(opened(), *decide(answer(), given(opened()), NOW).events),
    ):
        assert decide(Withdraw(reason="again", run_over=True), state, NOW) == NOTHING


def test_looking_says_nothing_and_waiting_costs_nothing() -> None:
    assert decide(Look(), given(opened()), NOW) == NOTHING
    assert CATEGORY.wake_at(given(opened()), NOW) is None


DAY = timedelta(days=1)
CHIEF = RoleBinding(roles=("chief",))
LATE = opened(due_at=NOW + DAY, due_seconds=DAY.total_seconds(), escalate_to="chief", escalate_binding=CHIEF)


def looked(state: State, at: datetime) -> State:
    return CATEGORY.fold(decide(Look(), state, at).events, state)


def test_what_nobody_answers_is_reminded_once_and_then_escalated_once() -> None:
    state = given(LATE)
    assert CATEGORY.wake_at(state, NOW) == NOW + DAY
    assert decide(Look(), state, NOW + DAY - timedelta(microseconds=1)) == NOTHING
    decided = decide(Look(), state, NOW + DAY)
    assert decided.events == (DecisionReminded(at=NOW + DAY),)
    assert decided.guards == (Guard("run", RUN, lifecycle.RUN_OPEN),)

    state = looked(state, NOW + DAY)
    assert decide(Look(), state, NOW + DAY) == NOTHING
    assert CATEGORY.wake_at(state, NOW) == NOW + 2 * DAY
    escalated = DecisionEscalated(at=NOW + 2 * DAY, role="chief", binding=CHIEF)
    assert decide(Look(), state, NOW + 2 * DAY).events == (escalated,)

    state = looked(state, NOW + 2 * DAY)
    assert (state.status, state.escalated_to) == ("open", "chief")
    assert CATEGORY.wake_at(state, NOW) is None
    assert decide(Look(), state, NOW + 9 * DAY) == NOTHING


def test_a_late_reminder_leaves_the_whole_second_window() -> None:
    state = looked(given(LATE), NOW + 5 * DAY)
    assert state.escalated_to is None
    assert CATEGORY.wake_at(state, NOW) == NOW + 6 * DAY


def test_without_a_second_role_it_is_reminded_and_waits_on() -> None:
    state = looked(given(opened(due_at=NOW + DAY, due_seconds=DAY.total_seconds())), NOW + DAY)
    assert CATEGORY.wake_at(state, NOW) is None
    assert decide(Look(), state, NOW + 9 * DAY) == NOTHING


def test_what_was_answered_or_withdrawn_has_no_clock() -> None:
    answered = CATEGORY.fold(decide(answer(), given(LATE), NOW).events, given(LATE))
    for state in (answered, given(LATE, DecisionWithdrawn(at=NOW, reason="over"))):
        assert CATEGORY.wake_at(state, NOW) is None
        assert decide(Look(), state, NOW + 9 * DAY) == NOTHING


def test_once_it_is_escalated_holders_of_both_roles_may_answer() -> None:
    chief, before = principal(roles=("chief",)), looked(given(LATE), NOW + DAY)
    assert refused(answer(chief), before).status == 403
    after = looked(before, NOW + 2 * DAY)
    for by in (chief, MANAGER):
        assert decide(answer(by), after, NOW + 2 * DAY).events
    error = refused(answer(principal(roles=("developer",))), after)
    assert "'product_owner' or 'chief'" in error.message


def test_administrators_answer_what_is_escalated_to_admin() -> None:
    administrator = principal(roles=("platform_admin",), project=None)
    bound = escalation_binding("admin", RoleBinding(roles=("admin",)))
    to_admin = LATE.model_copy(update={"escalate_to": "admin", "escalate_binding": bound})
    before = looked(given(to_admin), NOW + DAY)
    assert refused(answer(administrator), before).status == 403
    assert decide(answer(administrator), looked(before, NOW + 2 * DAY), NOW + 2 * DAY).events
    elsewhere = looked(looked(given(LATE), NOW + DAY), NOW + 2 * DAY)
    assert refused(answer(administrator), elsewhere).status == 403


def test_members_of_the_runs_project_hold_a_role_that_is_bound_to_it() -> None:
    bound = opened(binding=RoleBinding(project=True))
    assert decide(answer(principal()), given(bound), NOW).events
    assert refused(answer(principal(id_=INITIATOR.id, project=None)), given(bound)).status == 403


def test_every_edge_is_in_the_table() -> None:
    answered = decide(answer(), given(opened()), NOW).events
    withdrawn = decide(Withdraw(reason="over", run_over=False), given(opened()), NOW).events
    for events in (answered, withdrawn):
        assert CATEGORY.status(CATEGORY.fold(events, given(opened()))) in lifecycle.DECISION["open"]


def test_seeing_and_holding() -> None:
    nobody = principal(project=None)
    assert not sees_run(nobody, INITIATOR.id, None)
    assert sees_run(principal(project="core"), INITIATOR.id, "core")
    assert is_administrator(principal(roles=("platform_admin",)))
    assert not holds(nobody, RoleBinding())

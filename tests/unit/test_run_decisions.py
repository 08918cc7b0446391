"""A run and what it asks people: quorums, four eyes, questions, timeouts with a way of their own, stale approvals."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Actor
from contracts.events.decision import DecisionAnswered, DecisionRevised, DecisionVoted
from contracts.events.run import RoleBinding, UserRef
from libs.domain import decision, effect, run
from libs.domain.core import Guard
from libs.language.model import ANSWER_FORM, Approvals, ForEach, Wait
from tests.support.runs import DEVELOPER, GROUP, World, agent, bundle_of, event, manual, review, write

HOUR = timedelta(hours=1)


def world(*steps: Any, **changes: object) -> World:
    return World(bundle_of(*steps, **changes)).start()


def opened(world: World, step: str) -> decision.State:
    child = world.children[world.open_id(step)]
    assert isinstance(child, decision.State)
    return child


def status(world: World, *steps: str) -> list[str]:
    return [world.state.step(step).status for step in steps]


def said(world: World, step: str, answer: Any) -> World:
    """A person answers a question."""
    by = Actor(kind="user", id=uuid4(), name="olu@example.com")
    world._child(step, status="answered", outcome="answer", by=by, answer=world.keep(answer))
    return world.advance()


def test_a_quorum_is_opened_with_what_its_roles_resolve_to() -> None:
    step = review("ok", approvals=Approvals(need=2, groups={"security": 1}, veto="none"), timeout=3 * HOUR)
    its = world(agent("draft"), step, roles={"security": RoleBinding(groups=("sec",))})
    its.succeed("draft", {"a": 1})
    quorum = opened(its, "ok").quorum
    assert quorum is not None
    assert (quorum.need, quorum.veto, quorum.groups[0].binding) == (2, "none", RoleBinding(groups=("sec",)))
    assert opened(its, "ok").until == its.now + 3 * HOUR


def test_whoever_redoes_hears_everybody_who_asked_for_changes() -> None:
    its = world(agent("draft"), review("ok", approvals=Approvals(need=2)))
    its.succeed("draft", {"a": 1})
    ana, ben = (Actor(kind="user", id=uuid4(), name=name) for name in ("ana", "ben"))
    ballots = tuple(
        decision.Ballot(uuid4(), "request_changes", by, None, f"{by.name} says so", its.now) for by in (ana, ben)
    )
    its._child("ok", status="answered", outcome="request_changes", by=ben, comment="ben says so", ballots=ballots)
    told = its.advance().prompt("draft")
    assert "ana says so" in told
    assert "ben says so" in told
    feedback = its.state.step("draft").feedback
    assert feedback is not None
    assert (feedback.by, [(remark.by, remark.comment) for remark in feedback.others]) == (
        "ben",
        [("ana", "ana says so")],
    ), "each remark under its own person, so that one can be erased and the others stay"


def bars(world: World, step: str) -> set[tuple[str, UUID | None]]:
    return {(barred.rule, barred.user) for barred in opened(world, step).barred}


def test_four_eyes_name_the_initiator_who_completed_and_who_decided() -> None:
    its = world(manual("brief"), review("first"), review("last", barred=("initiator", "reviser", "brief", "first")))
    its.complete("brief", {"a": 1})
    its.answer("first", "approve", revised={"a": 2})
    by = opened(its, "first").by
    assert by is not None
    assert by.id is not None
    assert bars(its, "last") == {
        ("initiator", DEVELOPER.id),
        ("reviser", None),
        ("reviser", by.id),  # what is shown is what they made of it
        ("brief", DEVELOPER.id),
        ("first", by.id),
    }


def test_four_eyes_bar_everybody_who_voted_and_whom_they_voted_for() -> None:
    its = world(agent("draft"), review("first", approvals=Approvals(need=2)), review("last", barred=("first",)))
    its.succeed("draft", {"a": 1})
    first = its.open_id("first")
    people = [Actor(kind="user", id=uuid4(), name=name) for name in ("ana", "ben", "cleo")]
    state: Any = its.children[first]
    revised = its.keep({"a": 2})
    facts = (
        DecisionRevised(
            at=its.now, command_id=uuid4(), by=people[0], on_behalf_of=None, comment=None, artifact=revised,
            revised=revised, wiped=0,
        ),
        DecisionVoted(
            at=its.now, command_id=uuid4(), outcome="approve", by=people[1], on_behalf_of=None, comment=None,
            artifact=revised,
        ),
    )  # fmt: skip
    its.children[first] = decision.CATEGORY.fold(facts, state)
    its._child("first", status="answered", outcome="approve", by=people[2])
    its.advance()
    assert {user for _, user in bars(its, "last")} == {person.id for person in people}


def test_a_question_is_put_with_its_form_and_its_answer_is_handed_off() -> None:
    its = world(
        agent("draft"),
        review("ask", outcomes=("answer",), question="When is {{steps.draft.name}} of {{context.jira_key}} out?"),
        review("ok"),
        write("send", args_from="ask.output", requires_decision="ok"),
    )
    its.succeed("draft", {"name": "1.4"})
    asked = opened(its, "ask")
    assert asked.question == "When is 1.4 of CORE-1 out?"
    assert (asked.artifact, asked.artifact_step) == (None, None)
    assert asked.form is not None
    assert its.artefacts[asked.form.digest] == ANSWER_FORM
    said(its, "ask", {"answer": "tonight"})
    assert its.state.step("ask").outcome == "answer"
    its.answer("ok", "approve")
    assert its.arguments("send") == {"answer": "tonight"}


def test_a_question_that_reads_what_is_not_there_fails_for_want_of_data() -> None:
    its = world(agent("draft"), review("ask", outcomes=("answer",), question="Who is {{steps.draft.nobody}}?"))
    its.succeed("draft", {"name": "1.4"})
    assert (its.state.status, its.state.step("ask").failure_class) == ("suspended", "missing_data")


def test_four_eyes_bar_who_let_pass_what_a_gate_refused() -> None:
    checked = agent("draft", gate="score == 0")
    its = world(checked, review("ok", barred=("reviser",)), on_failure={"default": "escalate"})
    its.succeed("draft", {"score": 3})
    its.answer("draft", "approve", revised={"score": 0})
    by = its.state.step("draft").by
    assert by is not None
    assert bars(its, "ok") == {("reviser", None), ("reviser", by.id)}


def ask(**changes: object) -> Any:
    return review("ask", outcomes=("answer",), question="When?", timeout=HOUR, **changes)


def waits() -> Any:
    return event("signature", timeout=HOUR)


def test_a_question_that_nobody_answers_takes_the_answer_of_its_timeout() -> None:
    its = world(ask(timeout_answer={"answer": "sunday"}), agent("next"))
    its.advance(HOUR)
    record = its.state.step("ask")
    assert (record.status, record.outcome, record.by) == ("succeeded", "answer", None)
    assert record.output is not None
    assert its.artefacts[record.output.digest] == {"answer": "sunday"}
    assert status(its, "next") == ["queued"]


def test_no_question_times_out_that_was_answered_since_it_was_read() -> None:
    its = world(ask(timeout_answer={"answer": "sunday"}))
    decided = run.decide(run.Advance(run_id=its.run_id, evidence=its.evidence()), its.state, its.now + HOUR)
    assert decided.guards == (Guard("decision", its.open_id("ask"), frozenset({"open", "withdrawn"})),)


def test_what_times_out_without_more_fails_as_timeout_which_is_no_refusal() -> None:
    its = world(ask())
    its.advance(HOUR)
    record = its.state.step("ask")
    assert (record.status, record.failure_class, record.outcome) == ("failed", "timeout", None)


@pytest.mark.parametrize(("step", "category", "taken"), [(ask(), "decision", "answered"), (waits(), "wait", "matched")])
def test_a_timeout_counts_only_while_nothing_has_come(step: Any, category: str, taken: str) -> None:
    """What was read may be a moment old: the answer that comes meanwhile keeps the plan from being written."""
    its = world(step)
    advance = run.Advance(run_id=its.run_id, evidence=its.evidence())
    (guard,) = run.decide(advance, its.state, its.now + HOUR).guards
    assert (guard.category, guard.stream_id) == (category, its.open_id(step.key))
    assert taken not in guard.states
    assert "open" in guard.states
    assert run.decide(advance, its.state, its.now).guards == ()


def test_a_timeout_goes_on_at_a_later_step_and_skips_those_between() -> None:
    its = world(ask(on_timeout="tell"), agent("plan"), agent("tell"))
    its.advance(HOUR)
    assert status(its, "ask", "plan", "tell") == ["skipped", "skipped", "queued"]
    assert its.types.count("StepSkipped") == 2
    its.succeed("tell", {})
    assert its.state.status == "completed"


def test_a_write_whose_decision_was_passed_over_is_not_made() -> None:
    its = world(agent("draft"), review("ok", timeout=HOUR, on_timeout="send"), write("send", requires_decision="ok"))
    its.succeed("draft", {})
    its.advance(HOUR)
    assert (its.state.status, its.state.step("send").failure_class) == ("suspended", "missing_data")


def test_a_timeout_goes_back_to_an_earlier_step_as_often_as_the_limit_allows() -> None:
    its = world(agent("draft"), review("ok", timeout=HOUR, on_timeout="draft"))
    its.succeed("draft", {"a": 1})
    its.advance(HOUR)
    assert status(its, "draft", "ok") == ["queued", "pending"]
    assert "was answered by nobody" in its.prompt("draft")
    its.succeed("draft", {"a": 2})
    its.advance(HOUR)
    assert its.state.step("ok").failure_class == "timeout"


VALID = timedelta(minutes=30)


def stale_before(write_step: Any, *before: Any) -> World:
    its = world(agent("draft"), review("ok", approval_valid_for=VALID), *before, write_step)
    its.succeed("draft", {"title": "one"})
    return its.answer("ok", "approve")


def test_a_delayed_write_whose_approval_has_ended_asks_again_and_is_not_delayed_again() -> None:
    its = stale_before(write("send", args_from="draft.output", requires_decision="ok", wait=Wait(for_=3 * HOUR)))
    assert its.state.status == "waiting_timer"
    first = its.open_id("ok")
    its.advance(3 * HOUR)
    assert status(its, "ok", "send") == ["waiting", "delayed"]
    assert its.state.status == "waiting_decision"
    assert run.CATEGORY.wake_at(its.state, its.now) is None, "it waits for a person and costs nothing"
    again = opened(its, "ok")
    assert its.open_id("ok") == ids.decision(its.run_id, "ok", 1, 2) != first
    assert again.previous is not None
    assert again.previous.by.name == "lena@example.com"
    assert again.previous.artifact == its.state.step("draft").output
    its.answer("ok", "approve")
    assert status(its, "ok", "send") == ["succeeded", "writing"]
    record = its.state.step("send")
    assert record.valid_until == its.now + VALID
    its.written("send", {})
    assert its.state.status == "completed"


def test_an_effect_that_ended_unsent_is_armed_again_once_it_is_approved_again() -> None:
    its = stale_before(write("send", args_from="draft.output", requires_decision="ok"))
    effect_id = its.open_id("send")
    assert status(its, "send") == ["writing"]
    its._child("send", status="failed", failure_class="missing_data", message="stale", expired=True)
    its.advance(VALID)
    assert status(its, "ok", "send") == ["waiting", "pending"]
    its.answer("ok", "approve")
    record = its.state.step("send")
    assert (record.status, record.open_id, record.arm) == ("writing", effect_id, 1)


def test_a_write_that_is_tried_again_too_late_asks_again() -> None:
    on_failure = {"connector_unavailable": "retry_backoff"}
    its = world(
        agent("draft"), review("ok", approval_valid_for=VALID), write("send", requires_decision="ok"),
        on_failure=on_failure,
    )  # fmt: skip
    its.succeed("draft", {})
    its.answer("ok", "approve")
    its.fail("send", "connector_unavailable")
    assert status(its, "send") == ["retrying"]
    its.advance(VALID)
    assert status(its, "ok", "send") == ["waiting", "pending"]
    its.answer("ok", "reject")
    assert (its.state.status, its.state.outcome) == ("completed", "rejected")


def test_in_time_an_approval_is_used_and_says_until_when() -> None:
    its = stale_before(write("send", args_from="draft.output", requires_decision="ok"))
    child = its.children[its.open_id("send")]
    assert isinstance(child, effect.State)
    assert its.state.step("send").valid_until == its.now + VALID
    assert "ApprovalExpired" not in its.types


def test_of_several_writes_those_under_way_end_before_the_approval_is_asked_for_again() -> None:
    items = ForEach(items="steps.draft.parts", max_parallel=2)
    each = write(
        "send", for_each=items, args_from="item", effect_key="{{item.id}}", requires_decision="ok"
    )  # fmt: skip
    its = world(agent("draft"), review("ok", approval_valid_for=VALID), each)
    its.succeed("draft", {"parts": [{"id": 1}, {"id": 2}, {"id": 3}]})
    its.answer("ok", "approve")
    assert status(its, "send.0", "send.1", "send.2") == ["writing", "writing", "pending"]
    its._child("send.0", status="failed", failure_class="missing_data", message="stale", expired=True)
    its.advance(VALID)
    assert status(its, "ok", "send.0") == ["succeeded", "writing"], "the other one may have been sent"
    its.written("send.1", {})
    assert status(its, "ok", "send.0", "send.1", "send.2") == ["waiting", "pending", "succeeded", "pending"]
    assert its.state.status == "waiting_decision"
    its.answer("ok", "approve")
    its.written("send.0", {})
    its.written("send.2", {})
    assert its.state.status == "completed"


def fork_of(its: World, **changes: Any) -> World:
    child = World(its.bundle, artefacts=its.artefacts, now=its.now)
    shared = its.children if changes.get("told", True) else {}
    assert its.state.bundle is not None
    command = run.Fork(
        run_id=child.run_id,
        parent_id=its.run_id,
        parent=its.state,
        at_version=1,
        effects={},
        principal=changes.get("principal", DEVELOPER),
        evidence=run.Evidence(tenant_group=GROUP, bundle=its.bundle, artefacts=its.artefacts, children=shared),
        bundle=its.state.bundle,
        context=changes.get("context", {}),
        artifacts=changes.get("artifacts", {}),
    )
    return child.command(command)


def test_a_fork_asks_again_for_an_approval_that_ends() -> None:
    its = stale_before(write("send", args_from="draft.output", requires_decision="ok", wait=Wait(for_=HOUR)))
    assert status(fork_of(its), "draft", "ok") == ["succeeded", "waiting"]


def test_a_fork_inherits_what_was_passed_over_and_who_decided() -> None:
    its = world(
        manual("brief"), review("no", timeout=HOUR, on_timeout="draft"), agent("draft"), review("ok", barred=("brief",))
    )
    its.complete("brief", {})
    its.advance(HOUR)
    its.succeed("draft", {})
    child = fork_of(its)
    assert status(child, "brief", "no", "draft", "ok") == ["succeeded", "skipped", "succeeded", "waiting"]
    assert bars(child, "ok") == {("brief", DEVELOPER.id)}


def test_a_fork_puts_a_quorum_again_whose_voters_a_later_decision_bars() -> None:
    its = world(agent("draft"), review("first", approvals=Approvals(need=2)), review("last", barred=("first",)))
    its.succeed("draft", {})
    its.answer("first", "approve")
    assert status(fork_of(its), "first", "last") == ["waiting", "pending"]


ANA, BEN, CLEO = (Actor(kind="user", id=uuid4(), name=name) for name in ("ana", "ben", "cleo"))


def revised_by(its: World, step: str, last: Actor, *others: Actor, instead_of: UserRef | None = None) -> World:
    """The decision is revised by each of the others in turn, and then, for somebody, by the last one who approves."""
    state: Any = its.children[its.open_id(step)]
    for number, person in enumerate(others):
        ref = its.keep({"revised": number, "at": step})
        fact = DecisionRevised(
            at=its.now, command_id=uuid4(), by=person, on_behalf_of=None, comment=None, artifact=state.shown,
            revised=ref, wiped=0,
        )  # fmt: skip
        state = decision.CATEGORY.fold((fact,), state)
    answered = DecisionAnswered(
        at=its.now, command_id=uuid4(), outcome="approve", by=last, on_behalf_of=instead_of, comment=None,
        artifact=state.artifact, revised=its.keep({"revised": "last", "at": step}),
    )  # fmt: skip
    its.children[its.open_id(step)] = decision.CATEGORY.fold((answered,), state)
    return its.advance()


def revisers(its: World, step: str) -> set[UUID]:
    return {user for rule, user in bars(its, step) if rule == "reviser" and user is not None}


def people(*actors: Actor) -> set[UUID]:
    return {actor.id for actor in actors if actor.id is not None}


def test_all_who_revised_are_known_whatever_was_decided_since_and_in_every_fork() -> None:
    its = world(agent("draft"), review("first"), review("second"), review("last", barred=("reviser",)))
    its.succeed("draft", {"a": 1})
    dana = UserRef(id=uuid4(), email="dana@example.com")
    revised_by(its, "first", BEN, ANA, instead_of=dana)
    revised_by(its, "second", CLEO)
    known = {*people(ANA, BEN, CLEO), dana.id}
    assert revisers(its, "last") == known, "what one made of it lies under what the next one made of that"
    child = fork_of(its, told=False)
    assert revisers(child, "last") == known, "the run's own history says who"
    grandchild = fork_of(child)
    assert revisers(grandchild, "last") == known


def test_who_lays_an_artefact_over_one_for_a_fork_has_revised_it() -> None:
    its = world(agent("draft"), review("first"), review("last", barred=("reviser",)))
    its.succeed("draft", {"a": 1})
    revised_by(its, "first", ANA)
    admin = DEVELOPER.model_copy(update={"id": uuid4(), "roles": frozenset({"platform_admin"})})
    child = fork_of(its, artifacts={"draft": {"a": 3}}, principal=admin)
    child.answer("first", "approve")
    assert revisers(child, "last") == {*people(ANA), admin.id}


def test_what_is_made_anew_has_no_reviser_any_more() -> None:
    its = world(agent("draft"), review("first"), review("last", barred=("reviser",)))
    its.succeed("draft", {"a": 1})
    revised_by(its, "first", ANA)
    its.answer("last", "request_changes").succeed("draft", {"a": 2})
    its.answer("first", "approve")
    assert revisers(its, "last") == set()


def test_a_fork_knows_in_whose_place_was_decided_and_who_let_pass_what_a_gate_refused() -> None:
    its = world(agent("draft"), review("first"), review("last", barred=("first",)))
    its.succeed("draft", {"a": 1})
    dana = UserRef(id=uuid4(), email="dana@example.com")
    its._child("first", status="answered", outcome="approve", by=BEN, on_behalf_of=dana)
    its.advance()
    for child in (fork_of(its), fork_of(fork_of(its), told=False)):
        assert {user for _, user in bars(child, "last")} == {*people(BEN), dana.id}


@pytest.mark.parametrize("outcome", ["approve", "request_changes"])
def test_who_decided_stands_with_the_step(outcome: str) -> None:
    its = world(agent("draft"), review("ok"))
    its.succeed("draft", {})
    its.answer("ok", outcome)
    by = its.state.step("ok").by
    assert by is not None
    assert by.name == "lena@example.com"

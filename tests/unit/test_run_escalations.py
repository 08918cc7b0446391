"""A step that failed for good, and a person who is asked how it goes on."""

from dataclasses import replace
from datetime import timedelta

import pytest

from contracts.events.run import RoleBinding
from libs.domain import decision, run
from libs.domain.access import ADMINISTRATOR
from tests.support.runs import World, agent, both, bundle_of, event, gate, review, write

ESCALATE = {"on_failure": {"default": "escalate"}}


def asked(world: World, step: str) -> decision.State:
    child = world.children[world.open_id(step)]
    assert isinstance(child, decision.State)
    return child


def test_a_failed_step_asks_an_administrator_and_the_run_waits() -> None:
    world = World(bundle_of(agent("a"), **ESCALATE)).start().fail("a", "output_invalid", "no title")
    assert world.types[-3:] == ["StepFailed", "StepEscalated", "Parked"]
    assert world.state.status == "waiting_decision"
    question = asked(world, "a")
    assert question.role == "admin"
    assert set(question.binding.roles) == {"admin", ADMINISTRATOR}
    assert "a failed as output_invalid" in question.title
    assert world.state.step("a").message == "no title"


def test_a_decision_that_is_escalated_to_admin_is_given_to_administrators_too() -> None:
    step = review("ok", due=timedelta(hours=1), escalate_to="admin", outcomes=("approve", "reject"))
    question = asked(World(bundle_of(step, roles={"admin": RoleBinding(groups=("chiefs",))})).start(), "ok")
    assert (question.escalate_binding.roles, question.escalate_binding.groups) == ((ADMINISTRATOR,), ("chiefs",))
    assert ADMINISTRATOR not in question.binding.roles


def test_approve_tries_once_more_and_changes_are_told_to_the_next_attempt() -> None:
    world = World(bundle_of(agent("a"), **ESCALATE)).start().fail("a").answer("a", "approve")
    assert (world.state.step("a").status, world.state.step("a").attempt) == ("queued", 2)
    world.fail("a").answer("a", "request_changes", comment="Shorter.")
    assert "Shorter." in world.prompt("a")
    assert world.state.step("a").escalations == 2
    world.succeed("a", {})
    assert world.state.status == "completed"


@pytest.mark.parametrize("outcome,status", [("reject", "completed"), ("cancel", "cancelled")])
def test_the_run_may_end_by_the_answer(outcome: str, status: str) -> None:
    world = World(bundle_of(agent("a"), **ESCALATE)).start().fail("a").answer("a", outcome)
    assert world.state.status == status
    assert world.state.step("a").outcome == outcome


def test_a_refused_gate_passes_by_approval_and_is_asked_again_by_changes() -> None:
    step = gate("ok", "context.ready == true", escalate_to="boss")
    bundle = bundle_of(step, on_failure={"gate_failed": "escalate"}, roles={"boss": RoleBinding(groups=("chiefs",))})
    world = World(bundle).start({"ready": False})
    assert (asked(world, "ok").role, asked(world, "ok").binding.groups) == ("boss", ("chiefs",))
    world.answer("ok", "request_changes")
    assert world.state.step("ok").escalations == 2
    world.answer("ok", "approve")
    assert world.state.status == "completed"


def test_what_a_gate_refused_is_shown_and_passes_as_revised() -> None:
    step = agent("a", gate="score > 2")
    world = World(bundle_of(step, agent("b"), on_failure={"gate_failed": "escalate"})).start()
    world.succeed("a", {"score": 1}, cost=7)
    assert asked(world, "a").artifact is not None
    world.answer("a", "approve", revised={"score": 3})
    assert '"score": 3' in world.prompt("b")
    assert world.state.cost_microdollars == 7


def test_other_branches_go_on_meanwhile() -> None:
    world = World(bundle_of(both("build", agent("back"), agent("front")), **ESCALATE)).start().fail("build.back")
    assert world.state.status == "running"
    world.succeed("build.front", {})
    assert world.state.status == "waiting_decision"
    world.answer("build.back", "approve").succeed("build.back", {})
    assert world.state.status == "completed"


def test_a_rejection_stops_the_other_branches() -> None:
    world = World(bundle_of(both("build", agent("back"), agent("front")), **ESCALATE)).start().fail("build.back")
    world.answer("build.back", "reject")
    assert world.types[-2:] == ["StepCancelled", "Completed"]
    assert world.state.step("build.front").status == "cancelled"


def test_a_write_that_surely_was_not_made_is_armed_again() -> None:
    world = World(bundle_of(agent("a"), review("ok"), write("pr", requires_decision="ok"), **ESCALATE)).start()
    world.succeed("a", {}).answer("ok", "approve")
    effect_id = world.open_id("pr")
    world.fail("pr", "connector_unavailable").answer("pr", "approve")
    assert (world.open_id("pr"), world.state.step("pr").arm) == (effect_id, 1)
    assert world.written("pr", {}).state.status == "completed"


def test_an_event_that_never_came_is_waited_for_anew() -> None:
    world = World(bundle_of(event("one", timeout=timedelta(hours=1)), **ESCALATE)).start()
    world.advance(later=timedelta(hours=1))
    assert world.state.status == "waiting_decision"
    assert run.CATEGORY.wake_at(world.state, world.now) is None
    world.answer("one", "approve")
    assert world.state.status == "waiting_event"
    assert world.matched("one", {}).state.status == "completed"


def test_a_stage_that_cannot_be_entered_is_looked_at_again() -> None:
    bundle = bundle_of(agent("a"), **ESCALATE)
    stage = bundle.definition.stages[0].model_copy(update={"entry_requires": ("context.design",)})
    world = World(
        bundle.model_copy(update={"definition": bundle.definition.model_copy(update={"stages": (stage,)})})
    ).start()
    assert world.state.status == "waiting_decision"
    world.answer("a", "approve")
    assert (world.state.status, world.state.step("a").escalations) == ("waiting_decision", 2)
    assert world.answer("a", "cancel").state.status == "cancelled"


def test_a_question_that_was_withdrawn_with_the_run_is_put_again_when_it_goes_on() -> None:
    bundle = bundle_of(
        both("build", agent("back"), agent("front")), on_failure={"default": "escalate", "timeout": "fail"}
    )
    world = World(bundle).start().fail("build.back").fail("build.front", "timeout")
    assert world.state.status == "failed"
    first = world.open_id("build.back")
    world.children[first] = replace(asked(world, "build.back"), status="withdrawn")
    world.retry("build.front")
    assert world.open_id("build.back") != first
    assert asked(world, "build.back").status == "open"
    world.answer("build.back", "approve").succeed("build.back", {}).succeed("build.front", {})
    assert world.state.status == "completed"

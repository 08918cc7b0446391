"""Manual, event and gate steps, delays and timeouts, variants: what follows from what."""

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from contracts.base import Event, JsonObject
from contracts.errors import Rejected
from contracts.events.decision import DecisionOpened
from contracts.events.run import RoleBinding
from libs.domain import attempt, run, wait
from libs.language.model import Wait
from tests.support.runs import (
    DEVELOPER,
    STRANGER,
    World,
    agent,
    bundle_of,
    event,
    gate,
    manual,
    review,
)

HOUR = timedelta(hours=1)
MEMBER = STRANGER.model_copy(update={"projects": frozenset({"core"})})


def refused(call: Any) -> Rejected:
    with pytest.raises(Rejected) as error:
        call()
    return error.value


class TestGates:
    def test_a_gate_that_holds_is_passed_at_once(self) -> None:
        world = World(bundle_of(agent("a"), gate("ok", "steps.a.score > 2"), agent("b"))).start()
        world.succeed("a", {"score": 3})
        assert world.types[-3:] == ["StepSucceeded", "StepSucceeded", "StepQueued"]

    def test_a_refused_gate_fails_as_gate_failed_and_a_retry_asks_again(self) -> None:
        world = World(bundle_of(gate("ok", "context.ready == true"))).start({"ready": False})
        assert (world.state.status, world.state.failure_class) == ("suspended", "gate_failed")
        world.retry("ok")
        assert world.state.step("ok").status == "failed"

    def test_a_bare_path_reads_nothing(self) -> None:
        world = World(bundle_of(agent("a"), gate("ok", "score > 2"))).start().succeed("a", {"score": 3})
        assert "score" in (world.state.reason or "")
        assert world.state.failure_class == "gate_failed"

    def test_a_refused_gate_loops_as_often_as_it_may(self) -> None:
        refusing = gate("ok", "steps.a.score > 2", loop_to="a", loop_max=2)
        world = World(bundle_of(agent("a"), refusing)).start()
        for score in (0, 1):
            world.succeed("a", {"score": score})
            assert world.state.step("a").status == "queued"
        assert "is not met" in world.prompt("a")
        world.succeed("a", {"score": 2})
        assert "loop_max of 2" in (world.state.reason or "")


class TestManual:
    def bundle(self, **fields: object) -> World:
        world = World(bundle_of(manual("note", **fields), agent("b")))
        bundle = world.bundle.model_copy(update={"schemas": {"n.json": {"type": "object", "required": ["text"]}}})
        return World(bundle)

    def test_a_person_completes_it_with_an_artefact(self) -> None:
        world = self.bundle(output="n.json").start()
        assert world.state.status == "waiting_decision"
        assert run.CATEGORY.wake_at(world.state, world.now) is None
        world.complete("note", {"text": "done"})
        assert world.types[-4:] == ["Unparked", "ManualCompleted", "StepSucceeded", "StepQueued"]
        assert '"text": "done"' in world.prompt("b")
        assert world.state.step("note").artifact_state == "proposed"

    def test_the_same_command_says_nothing_and_another_gets_409_with_who(self) -> None:
        world, command_id = self.bundle().start(), uuid4()
        world.complete("note", {"a": 1}, command_id=command_id)
        before = list(world.types)
        assert world.complete("note", {"a": 1}, command_id=command_id).types == before
        error = refused(lambda: world.complete("note", {"a": 2}))
        assert (error.status, error.code, error.extra["who"]) == (409, "step.completed", DEVELOPER.name)

    def test_what_does_not_fit_the_schema_is_refused_by_path(self) -> None:
        error = refused(lambda: self.bundle(output="n.json").start().complete("note", {}))
        assert (error.status, error.code) == (422, "output_invalid")
        assert [item.path for item in error.errors] == ["artifact"]
        assert refused(lambda: self.bundle().start().complete("note", "text")).status == 422

    def test_it_is_the_roles_and_nobody_elses(self) -> None:
        world = self.bundle(role="lead").start()
        assert refused(lambda: world.complete("note", {}, principal=STRANGER)).status == 404
        assert refused(lambda: world.complete("note", {})).status == 403
        lead = MEMBER.model_copy(update={"roles": frozenset({"lead"})})
        assert world.complete("note", {}, principal=lead).state.step("note").status == "succeeded"

    def test_without_a_role_it_is_the_initiators(self) -> None:
        world = self.bundle().start()
        assert refused(lambda: world.complete("note", {}, principal=MEMBER)).status == 403
        assert refused(lambda: world.complete("b", {})).status == 404

    def test_a_role_may_be_membership_of_the_runs_project(self) -> None:
        world = World(bundle_of(manual("note", role="team"), roles={"team": RoleBinding(project=True)})).start()
        assert world.complete("note", {}, principal=MEMBER).state.status == "completed"

    def test_not_while_the_run_is_suspended(self) -> None:
        world = self.bundle().start().suspend()
        assert refused(lambda: world.complete("note", {})).status == 409
        world.resume().complete("note", {})
        assert world.state.step("note").status == "succeeded"

    def test_changes_are_asked_of_whoever_made_it(self) -> None:
        world = World(bundle_of(manual("note"), review("ok"))).start().complete("note", {"a": 1})
        world.answer("ok", "request_changes", comment="More.")
        assert world.state.step("note").status == "waiting"
        assert world.state.step("note").feedback is not None
        world.complete("note", {"a": 2})
        assert world.state.step("ok").status == "waiting"


class TestEvents:
    def test_a_wait_is_opened_with_what_the_context_says(self) -> None:
        step = event("merged", match={"event": "merged", "pr": "$context.pr.number", "repo": ["a", "$context.repo"]})
        world = World(bundle_of(step)).start({"pr": {"number": 7}, "repo": "b"})
        assert world.types[-2:] == ["EventAwaited", "Parked"]
        assert world.state.status == "waiting_event"
        child = world.children[world.open_id("merged")]
        assert isinstance(child, wait.State)
        assert child.match == {"event": "merged", "pr": 7, "repo": ["a", "b"]}
        assert child.since == world.state.created_at

    @pytest.mark.parametrize("context", [{}, {"pr": None}])
    def test_a_value_that_is_not_set_is_named(self, context: JsonObject) -> None:
        world = World(bundle_of(event("merged", match={"pr": "$context.pr"}))).start(context)
        assert world.state.failure_class == "missing_data"
        assert "context.pr" in (world.state.reason or "")

    def test_the_event_is_the_output_and_is_taken_once(self) -> None:
        world = World(bundle_of(event("one"), event("two"))).start()
        world.matched("one", {"sha": "abc"})
        assert world.types[-4:] == ["EventTaken", "StepSucceeded", "EventAwaited", "Parked"]
        output = world.state.step("one").output
        assert output is not None
        artefact = world.artefacts[output.digest]
        assert artefact == {"event": "merged", "external_id": "e-1", "keys": {}, "payload": {"sha": "abc"}}
        child = world.children[world.open_id("two")]
        assert isinstance(child, wait.State)
        assert child.consumed == world.state.consumed
        assert len(child.consumed) == 1

    def test_an_event_that_came_while_suspended_is_taken_on_resume(self) -> None:
        world = World(bundle_of(event("one"))).start().suspend()
        world.matched("one", {})
        assert world.state.status == "suspended"
        assert world.resume().state.status == "completed"

    def test_a_timeout_fails_the_step_and_a_retry_waits_anew(self) -> None:
        world = World(bundle_of(event("one", timeout=HOUR))).start()
        assert run.CATEGORY.wake_at(world.state, world.now) == world.now + HOUR
        first = world.open_id("one")
        world.advance(later=HOUR)
        assert (world.state.status, world.state.failure_class) == ("suspended", "timeout")
        world.retry("one")
        assert world.state.status == "waiting_event"
        assert world.open_id("one") != first


class TestDelays:
    def test_a_delay_parks_and_the_clock_wakes_it(self) -> None:
        world = World(bundle_of(agent("a", wait=Wait(for_=HOUR)))).start()
        assert world.types[-2:] == ["StepDelayed", "Parked"]
        assert world.state.status == "waiting_timer"
        assert run.CATEGORY.wake_at(world.state, world.now) == world.now + HOUR
        assert world.advance(later=HOUR / 2).state.status == "waiting_timer"
        world.advance(later=HOUR / 2)
        assert world.types[-2:] == ["Unparked", "StepQueued"]

    def test_an_instant_that_has_passed_does_not_wait(self) -> None:
        world = World(bundle_of(agent("a", wait=Wait(until="2020-01-01T00:00:00Z")))).start()
        assert world.state.step("a").status == "queued"

    def test_an_instant_may_come_from_an_earlier_step(self) -> None:
        world = World(bundle_of(agent("a"), agent("b", wait=Wait(until="steps.a.at")))).start()
        world.succeed("a", {"at": "2026-03-02T12:00:00+01:00"})
        assert run.CATEGORY.wake_at(world.state, world.now) == world.now + 2 * HOUR

    @pytest.mark.parametrize("output", [{}, {"at": None}, {"at": "soon"}, {"at": 7}, {"at": "2026-03-02T12:00:00"}])
    def test_what_is_no_instant_is_missing_data(self, output: JsonObject) -> None:
        world = World(bundle_of(agent("a"), agent("b", wait=Wait(until="steps.a.at")))).start().succeed("a", output)
        assert world.state.failure_class == "missing_data"
        assert "steps.a.at" in (world.state.reason or "")


class TestTimeouts:
    def test_an_attempt_has_the_shorter_of_its_timeout_and_what_is_left(self) -> None:
        for timeout, seconds in ((timedelta(minutes=5), 300), (timedelta(hours=9), 3600)):
            world = World(bundle_of(agent("a", timeout=timeout))).start()
            child = world.children[world.open_id("a")]
            assert isinstance(child, attempt.State)
            assert child.request is not None
            request: Any = world.artefacts[child.request.digest]
            assert request["deadline_seconds"] == seconds

    def test_a_decision_that_nobody_answers_times_out(self) -> None:
        world = World(bundle_of(agent("a"), review("ok", timeout=HOUR))).start().succeed("a", {})
        first = world.open_id("ok")
        assert run.CATEGORY.wake_at(world.state, world.now) == world.now + HOUR
        world.advance(later=HOUR)
        assert (world.state.status, world.state.failure_class) == ("suspended", "timeout")
        world.retry("ok")
        assert world.open_id("ok") != first
        world.answer("ok", "approve")
        assert world.state.status == "completed"

    def test_a_manual_step_times_out(self) -> None:
        world = World(bundle_of(manual("note", timeout=HOUR), on_failure={"timeout": "fail"})).start()
        world.advance(later=HOUR)
        assert (world.state.status, world.state.failure_class) == ("failed", "timeout")
        assert world.retry("note").state.status == "waiting_decision"

    def test_a_decision_knows_when_it_is_due(self) -> None:
        world = World(bundle_of(agent("a"), review("ok", due=HOUR, escalate_to="boss"))).start()
        (opened,) = [birth for birth in self.births(world, {}) if isinstance(birth, DecisionOpened)]
        assert (opened.due_at, opened.due_seconds) == (world.now + HOUR, 3600)
        assert opened.escalate_binding == RoleBinding(roles=("boss",))

    def births(self, world: World, output: JsonObject) -> list[Event]:
        """What is born when the attempt of `a` succeeds."""
        attempt_id = world.open_id("a")
        queued: Any = world.children[attempt_id]
        world.children[attempt_id] = replace(queued, status="succeeded", output=world.keep(output))
        advance = run.Advance(run_id=world.run_id, evidence=world.evidence())
        return [birth.event for birth in run.decide(advance, world.state, world.now).births]


class TestVariants:
    def world(self) -> World:
        bundle = bundle_of(agent("a"), review("ok", role="lead"))
        step = review("ok", role="lead_in")
        stage = bundle.definition.stages[0].model_copy(update={"steps": (agent("a"), step)})
        india = bundle.definition.model_copy(update={"stages": (stage,), "context_defaults": {"region": "in"}})
        return World(bundle.model_copy(update={"variants": {"india": india}}))

    def test_a_run_keeps_to_its_variant(self) -> None:
        world = self.world().start(variant="india").succeed("a", {})
        assert world.state.variant == "india"
        child: Any = world.children[world.open_id("ok")]
        assert child.role == "lead_in"
        assert world.state.context == {"region": "in", "jira_key": "CORE-1"}

    def test_the_runs_own_value_beats_the_default(self) -> None:
        world = self.world().start({"region": "uk"}, variant="india")
        assert world.state.context == {"region": "uk"}

    def test_the_default_variant_has_two_names(self) -> None:
        world = self.world().start(variant="default")
        assert world.state.variant is None
        before = list(world.types)
        assert world.start().types == before

    def test_one_that_does_not_exist_is_refused_with_those_that_do(self) -> None:
        error = refused(lambda: self.world().start(variant="mars"))
        assert (error.status, error.code) == (422, "run.variant_unknown")
        assert "default, india" in error.message

"""A run that is suspended for a write in doubt goes on by itself once that is settled, and by nobody else's doing."""

from dataclasses import replace
from typing import Any

from contracts.base import Actor
from contracts.events.effect import EffectSettled
from libs.domain import effect
from minutebook.models.states import SettleVerdict
from tests.support.runs import START, World, agent, bundle_of, review, write

ADA = Actor(kind="user", name="ada@example.com")


def in_doubt(*more: Any, **fields: Any) -> World:
    """A run whose write, `pr`, is in doubt."""
    steps = (agent("plan"), review("ok", artifact="plan"), write("pr", requires_decision="ok", **fields), *more)
    world = World(bundle_of(*steps, on_failure={"default": "retry_backoff"}))
    world.start().succeed("plan", {"title": "t"}).answer("ok", "approve")
    doubt(world, "pr")
    assert world.advance().state.status == "suspended"
    return world


def doubt(world: World, step: str) -> None:
    change(world, step, status="in_doubt", message="no answer")


def change(world: World, step: str, **changes: Any) -> None:
    stream_id = world.open_id(step)
    child = world.children[stream_id]
    assert isinstance(child, effect.State)
    world.children[stream_id] = replace(child, **changes)


def settle(world: World, step: str, verdict: SettleVerdict) -> World:
    stream_id = world.open_id(step)
    child = world.children[stream_id]
    assert isinstance(child, effect.State)
    said = EffectSettled(
        at=START,
        command_id=None,
        verdict=verdict,
        source="operator",
        by=ADA,
        reference=None,
        comment=None,
        response=world.keep({"html_url": "https://example.com/1"}) if verdict == "landed" else None,
        arm=child.arm + 1 if verdict == "try_again" else child.arm,
    )
    world.children[stream_id] = effect.evolve(child, said)
    return world.advance()


def test_what_landed_is_the_steps_success_and_the_settler_resumed_it() -> None:
    world = settle(in_doubt(), "pr", "landed")
    assert world.state.status == "completed"
    assert (world.state.by, world.types[-4:]) == (ADA, ["Suspended", "Resumed", "StepSucceeded", "Completed"])


def test_what_did_not_land_is_the_steps_failure() -> None:
    world = settle(in_doubt(), "pr", "not_landed")
    assert world.state.status == "running"
    record = world.state.step("pr")
    assert (record.status, record.failure_class) == ("retrying", "default")


def test_what_is_tried_again_is_waited_for_and_a_failure_of_it_arms_beyond_the_verdict() -> None:
    world = settle(in_doubt(), "pr", "try_again")
    assert (world.state.status, world.state.step("pr").status) == ("running", "writing")
    change(world, "pr", status="failed", failure_class="default", message="no")
    world.advance()
    not_before = world.state.step("pr").not_before
    assert not_before is not None
    world.advance(not_before - world.now)
    assert (world.state.step("pr").status, world.state.step("pr").arm) == ("writing", 2)


def test_nothing_goes_on_while_nothing_is_settled() -> None:
    assert in_doubt().advance().state.status == "suspended"


def test_a_run_that_a_person_suspended_stays_so() -> None:
    steps = (agent("plan"), review("ok", artifact="plan"), write("pr", requires_decision="ok"))
    world = World(bundle_of(*steps)).start().succeed("plan", {}).answer("ok", "approve").suspend()
    doubt(world, "pr")
    assert settle(world, "pr", "landed").state.status == "suspended"


def test_a_late_answer_lets_it_go_on_as_well() -> None:
    world = in_doubt()
    change(world, "pr", status="succeeded", response=world.keep({}))
    assert world.advance().state.status == "completed"
    assert world.state.by is None

"""Since when a step is under way: what its duration is counted from."""

from datetime import datetime, timedelta

from libs.domain import run
from tests.support.runs import DEVELOPER, World, agent, both, bundle_of, review, write

MINUTE = timedelta(minutes=1)
RETRIES = {"on_failure": {"default": "retry_backoff"}}


def since(world: World, step: str) -> datetime | None:
    return world.state.step(step).since


def later(world: World, by: timedelta = MINUTE) -> datetime:
    """Let time pass before the next thing happens."""
    world.now += by
    return world.now


def test_a_step_begins_when_it_is_queued_opened_or_declared() -> None:
    world = World(bundle_of(agent("work"), review("approval"), write("pr", requires_decision="approval"))).start()
    assert since(world, "work") == world.now
    assert since(world, "approval") is None
    opened = later(world)
    world.succeed("work", {})
    assert since(world, "approval") == opened
    declared = later(world)
    world.answer("approval", "approve")
    assert since(world, "pr") == declared
    assert since(world, "approval") == opened


def test_a_parallel_step_begins_with_its_branches() -> None:
    world = World(bundle_of(both("build", agent("back"), agent("front")))).start()
    assert [since(world, step) for step in ("build", "build.back", "build.front")] == [world.now] * 3
    began = world.now
    later(world)
    world.succeed("build.back", {})
    assert since(world, "build") == began


def test_retries_belong_to_the_step_that_they_try_again() -> None:
    world = World(bundle_of(agent("work"), **RETRIES)).start()
    began = world.now
    world.fail("work").advance(MINUTE)
    assert world.state.step("work").attempt == 2
    assert since(world, "work") == began


def test_a_write_that_is_armed_again_goes_on() -> None:
    world = World(
        bundle_of(agent("work"), review("approval"), write("pr", requires_decision="approval"), **RETRIES)
    ).start()
    world.succeed("work", {}).answer("approval", "approve")
    began = since(world, "pr")
    world.fail("pr").advance(MINUTE)
    assert world.state.step("pr").arm == 1
    assert since(world, "pr") == began


def test_a_step_that_a_person_has_tried_once_more_begins_anew() -> None:
    world = World(bundle_of(agent("work"))).start()
    world.fail("work")
    again = later(world)
    retry = run.RetryStep(run_id=world.run_id, step="work", principal=DEVELOPER, evidence=world.evidence())
    world.take(run.decide(retry, world.state, world.now))
    assert world.state.step("work").status == "queued"
    assert since(world, "work") == again


def test_a_new_round_begins_anew() -> None:
    world = World(bundle_of(agent("work"), review("approval", artifact="work"))).start()
    world.succeed("work", {})
    again = later(world)
    world.answer("approval", "request_changes", comment="more")
    assert world.state.step("work").round == 2
    assert since(world, "work") == again

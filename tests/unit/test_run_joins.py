"""Steps that hold others: branches of which any is enough, and items of a list."""

from datetime import timedelta
from typing import Any

import pytest

from contracts.base import JsonValue
from libs.domain import run
from libs.language.model import ForEach
from tests.support.runs import World, agent, both, bundle_of, review, write


def output(world: World, step: str) -> JsonValue:
    ref = world.state.step(step).output
    assert ref is not None
    return world.artefacts[ref.digest]


class TestAny:
    def world(self, **changes: object) -> World:
        return World(bundle_of(both("build", agent("back"), agent("front"), join="any"), agent("b"), **changes)).start()

    def test_the_first_that_succeeds_wins_and_the_others_are_stopped(self) -> None:
        world = self.world()
        loser = world.open_id("build.back")
        world.succeed("build.front", {"ui": 1})
        assert world.types[-4:] == ["StepSucceeded", "StepCancelled", "StepSucceeded", "StepQueued"]
        assert output(world, "build") == {"front": {"ui": 1}}
        assert world.state.step("build.back").status == "cancelled"
        assert world.open_id("build.back") == loser

    def test_what_both_cost_counts_when_both_are_done(self) -> None:
        world = self.world().suspend()
        world.succeed("build.front", {"ui": 1}, cost=3).succeed("build.back", {"api": 1}, cost=4)
        world.resume()
        assert output(world, "build") == {"back": {"api": 1}}
        assert world.state.cost_microdollars == 7

    def test_a_branch_that_fails_stops_nothing_until_all_have(self) -> None:
        world = self.world().fail("build.back", "timeout", "too slow")
        assert world.state.status == "running"
        assert world.suspend().resume().state.status == "running"
        world.fail("build.front", "output_invalid", "no title")
        assert (world.state.status, world.state.failure_class) == ("suspended", "output_invalid")
        assert world.state.reason == "every branch has failed: back: too slow; front: no title"
        assert world.state.step("build").status == "failed"

    def test_a_failed_branch_does_not_stand_in_the_way_of_the_winner(self) -> None:
        world = self.world().fail("build.back").succeed("build.front", {})
        assert world.state.step("b").status == "queued"
        assert world.suspend().resume().state.status == "running"

    @pytest.mark.parametrize("step,queued", [("build", 2), ("build.back", 1)])
    def test_the_step_is_retried_whole_or_by_branch(self, step: str, queued: int) -> None:
        world = self.world().fail("build.back").fail("build.front").retry(step)
        assert sum(world.state.step(f"build.{b}").status == "queued" for b in ("back", "front")) == queued
        world.succeed("build.back", {})
        assert world.state.step("build").status == "succeeded"

    def test_backoff_is_waited_for(self) -> None:
        world = self.world(on_failure={"default": "retry_backoff"}).fail("build.back").fail("build.front")
        assert world.state.status == "running"
        world.advance(later=timedelta(seconds=5))
        assert world.state.step("build.back").attempt == 2


class TestItems:
    def world(self, items: JsonValue = None, max_parallel: int = 2, **changes: object) -> World:
        step = agent("each", for_each=ForEach(items="context.parts", max_parallel=max_parallel))
        parts: JsonValue = ["a", "b", "c"] if items is None else items
        return World(bundle_of(step, agent("b"), **changes)).start({"parts": parts})

    def open(self, world: World) -> list[str]:
        return [key for key, record in world.state.below("each").items() if record.status == "queued"]

    def test_each_item_is_a_step_of_its_own_and_so_many_at_a_time(self) -> None:
        world = self.world()
        assert world.types[-3:] == ["ItemsEntered", "StepQueued", "StepQueued"]
        assert self.open(world) == ["each.0", "each.1"]
        world.succeed("each.1", {"n": 1})
        assert self.open(world) == ["each.0", "each.2"]

    def test_outputs_join_in_order(self) -> None:
        world = self.world(max_parallel=3)
        for index in (2, 0, 1):
            world.succeed(f"each.{index}", {"n": index})
        assert output(world, "each") == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert world.state.step("b").status == "queued"

    def test_an_agent_is_told_its_item(self) -> None:
        world = self.world([{"file": "a.py"}, {"file": "b.py"}])
        assert '## Item\n\n```json\n{\n  "index": 1,\n  "item": {\n    "file": "b.py"' in world.prompt("each.1")

    def test_an_empty_list_succeeds_with_an_empty_list(self) -> None:
        world = self.world([])
        assert output(world, "each") == []
        assert world.state.step("b").status == "queued"

    @pytest.mark.parametrize("items", ["abc", {"a": 1}, 7])
    def test_what_is_no_list_is_missing_data(self, items: JsonValue) -> None:
        world = self.world(items)
        assert world.state.failure_class == "missing_data"
        assert "context.parts" in (world.state.reason or "")

    def test_too_many_items_name_the_limit(self) -> None:
        world = self.world(list(range(run.ITEMS_MAX + 1)))
        assert world.state.failure_class == "output_invalid"
        assert "ITEMS_MAX is 500" in (world.state.reason or "")

    def test_a_retry_repeats_only_what_failed(self) -> None:
        world = self.world(max_parallel=3).succeed("each.0", {"n": 0})
        world.fail("each.1", "timeout")
        assert world.state.status == "suspended"
        world.succeed("each.2", {"n": 2}).retry("each")
        assert {key: r.attempts for key, r in world.state.below("each").items()} == {
            "each.0": 1,
            "each.1": 2,
            "each.2": 1,
        }
        world.succeed("each.1", {"n": 1})
        assert output(world, "each") == [{"n": 0}, {"n": 1}, {"n": 2}]

    def test_one_item_may_be_retried_alone(self) -> None:
        world = self.world(max_parallel=3).fail("each.0").fail("each.1").retry("each.0").retry("each.1")
        assert sorted(self.open(world)) == ["each.0", "each.1", "each.2"]

    def test_a_loop_does_all_of_it_again_on_the_new_list(self) -> None:
        step = agent("each", for_each=ForEach(items="steps.plan.parts"))
        world = World(bundle_of(agent("plan"), step, review("ok", artifact="each", on={"request_changes": "plan"})))
        world.start().succeed("plan", {"parts": [1, 2]}).succeed("each.0", {}).succeed("each.1", {})
        world.answer("ok", "request_changes").succeed("plan", {"parts": [3]})
        assert self.open(world) == ["each.0"]
        world.succeed("each.0", {"n": 3})
        assert output(world, "each") == [{"n": 3}]

    def test_a_redone_step_tells_every_item_why(self) -> None:
        step = agent("each", for_each=ForEach(items="context.parts"))
        world = World(bundle_of(step, review("ok", artifact="each"))).start({"parts": [1, 2]})
        world.succeed("each.0", {}).succeed("each.1", {}).answer("ok", "request_changes", comment="Shorter.")
        assert "Shorter." in world.prompt("each.1")


class TestItemWrites:
    def world(self, **fields: object) -> World:
        values: dict[str, Any] = {
            "for_each": ForEach(items="steps.plan.issues"),
            "args_from": "item.issue",
            "args": {"nth": "{{index}}", "team": "{{item.team}}"},
            "effect_key": "issue:{{item.team}}:{{args.title}}",
            "requires_decision": "ok",
        }
        step = write("file", **(values | fields))
        world = World(bundle_of(agent("plan"), review("ok"), step)).start()
        issues: JsonValue = [{"team": "x", "issue": {"title": "one"}}, {"team": "y", "issue": {"title": "two"}}]
        return world.succeed("plan", {"issues": issues}).answer("ok", "approve")

    def test_each_item_is_an_effect_of_its_own(self) -> None:
        world = self.world()
        assert world.arguments("file.1") == {"title": "two", "nth": 1, "team": "y"}
        child: Any = world.children[world.open_id("file.1")]
        assert child.key == "issue:y:two"
        world.written("file.1", {"id": 2}).written("file.0", {"id": 1})
        assert output(world, "file") == [{"id": 1}, {"id": 2}]
        assert world.state.status == "completed"

    def test_an_item_that_is_the_arguments(self) -> None:
        world = self.world(args_from="item", args={}, effect_key="issue:{{index}}")
        assert world.arguments("file.0") == {"team": "x", "issue": {"title": "one"}}

    def test_an_item_that_lacks_a_value_fails_alone_and_says_which(self) -> None:
        world = self.world(args={"who": "{{item.owner}}"})
        assert world.state.failure_class == "missing_data"
        assert "item.owner" in (world.state.reason or "")

    def test_what_was_written_is_not_written_again_by_a_retry(self) -> None:
        world = self.world().written("file.0", {"id": 1}).fail("file.1", "connector_unavailable").retry("file")
        assert (world.state.step("file.1").arm, world.state.step("file.0").arm) == (1, 0)
        assert world.written("file.1", {"id": 2}).state.status == "completed"

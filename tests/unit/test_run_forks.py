"""Runs that are made of other runs: restarts and forks."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.base import BlobRef, Event, Principal
from contracts.errors import Rejected
from libs.domain import effect, run
from libs.domain.core import Decided
from tests.support.runs import DEVELOPER, GROUP, STRANGER, World, agent, both, bundle_of, review, write

BUNDLE = BlobRef(digest="1" * 64, bytes=2)


@dataclass
class Recording(World):
    """A world that keeps its facts, so that it may be forked."""

    facts: list[Event] = field(default_factory=list)

    def take(self, decided: Decided) -> None:
        self.facts += decided.events
        super().take(decided)


def parent(effect_key: str = "pr:{{context.jira_key}}") -> Recording:
    steps = (
        agent("plan"),
        both("build", agent("back"), agent("front")),
        review("ok", artifact="build"),
        write("pr", args_from="plan.output", requires_decision="ok", effect_key=effect_key),
        agent("after"),
    )
    world = Recording(bundle_of(*steps))
    world.start({"jira_key": "CORE-1"}).succeed("plan", {"title": "t"})
    return world


def built(**fields: str) -> Recording:
    world = parent(**fields)
    world.succeed("build.back", {"api": 1}).succeed("build.front", {"ui": 1})
    return world


def fork(
    world: Recording,
    *,
    principal: Principal = DEVELOPER,
    at_version: int | None = None,
    from_step: str | None = None,
    effects: dict[str, UUID] | None = None,
    bundle: Any = None,
    **changes: Any,
) -> World:
    """The new run, which shares its parent's artefacts and effects."""
    state, version = run.point(world.facts, at_version=at_version, from_step=from_step)
    child = World(bundle or world.bundle, artefacts=world.artefacts, children=world.children)
    command = run.Fork(
        run_id=child.run_id,
        parent_id=world.run_id,
        parent=state,
        at_version=version,
        effects=effects or {},
        principal=principal,
        evidence=run.Evidence(tenant_group=GROUP, bundle=child.bundle, artefacts=world.artefacts),
        bundle=BUNDLE,
        context=changes.get("context", {}),
        artifacts=changes.get("artifacts", {}),
    )
    return child.command(command)


def test_a_restart_takes_context_project_and_variant_along() -> None:
    world = built()
    child = World(world.bundle)
    command = run.Restart(
        run_id=child.run_id,
        parent_id=world.run_id,
        parent=world.state,
        principal=DEVELOPER,
        evidence=run.Evidence(tenant_group=GROUP, bundle=world.bundle),
        bundle=BUNDLE,
    )
    child.command(command)
    assert (child.state.parent, child.state.context, child.state.project_id) == (
        world.run_id,
        world.state.context,
        "core",
    )
    assert child.types[-1] == "StepQueued"
    assert run.decide(command, child.state, child.now).events == ()


def test_a_fork_of_the_present_goes_on_where_the_parent_stands() -> None:
    child = fork(built())
    assert child.types[:3] == ["Created", "Forked", "StepInherited"]
    assert child.state.status == "waiting_decision"
    assert child.state.step("build").output == built().state.step("build").output
    child.answer("ok", "approve")
    assert child.arguments("pr") == {"title": "t"}


def test_before_a_step_began_it_and_what_follows_run_again() -> None:
    child = fork(built(), from_step="build")
    assert child.state.step("plan").status == "succeeded"
    assert child.state.step("build.back").status == "queued"
    assert '"title": "t"' in child.prompt("build.back")


def test_finished_branches_are_inherited_with_an_unfinished_step() -> None:
    world = parent()
    world.succeed("build.back", {"api": 1})
    child = fork(world)
    assert child.state.step("build.back").status == "succeeded"
    assert child.succeed("build.front", {"ui": 2}).state.step("build").status == "succeeded"


def test_a_version_of_the_history_is_a_point() -> None:
    world = built()
    queued = next(i for i, fact in enumerate(world.facts, 1) if getattr(fact, "step", "") == "plan")
    child = fork(world, at_version=queued)
    assert child.state.step("plan").status == "queued"
    for point in ({"at_version": 999}, {"from_step": "after"}, {"from_step": "nowhere"}):
        with pytest.raises(Rejected) as error:
            fork(world, **point)
        assert error.value.status == 422


def test_a_step_that_ran_in_several_rounds_began_last_in_the_last() -> None:
    world = built()
    world.answer("ok", "request_changes").succeed("build.back", {"api": 2}).succeed("build.front", {"ui": 2})
    child = fork(world, from_step="ok")
    assert child.state.status == "waiting_decision"
    output = child.state.step("build").output
    assert output is not None
    assert child.artefacts[output.digest] == {"back": {"api": 2}, "front": {"ui": 2}}


def test_approvals_are_inherited_while_nothing_was_changed() -> None:
    world = built()
    world.answer("ok", "approve")
    child = fork(world)
    assert child.state.step("pr").status == "writing"


@pytest.mark.parametrize("change", [{"context": {"jira_key": "CORE-2"}}, {"artifacts": {"plan": {"title": "u"}}}])
def test_a_write_that_is_not_what_was_approved_is_decided_anew(change: dict[str, Any]) -> None:
    world = built()
    world.answer("ok", "approve")
    child = fork(world, **change)
    assert (child.state.status, child.state.step("ok").status) == ("waiting_decision", "waiting")
    assert child.state.step("build").status == "succeeded"


def test_another_version_is_decided_anew() -> None:
    world = built()
    world.answer("ok", "approve")
    other = world.bundle.model_copy(update={"hash": "9" * 64})
    child = fork(world, bundle=other)
    assert child.state.hash == "9" * 64
    assert child.state.step("ok").status == "waiting"


def test_artefacts_are_laid_over_those_of_finished_steps_only() -> None:
    child = fork(built(), from_step="build", artifacts={"plan": {"title": "better"}})
    assert '"title": "better"' in child.prompt("build.back")
    with pytest.raises(Rejected) as error:
        fork(built(), artifacts={"after": {}})
    assert [item.path for item in error.value.errors] == ["artifacts.after"]


class TestEffects:
    def forked(self, status: str, effect_key: str = "pr:{{context.jira_key}}") -> tuple[World, UUID]:
        world = built(effect_key=effect_key)
        world.answer("ok", "approve")
        effect_id = world.open_id("pr")
        made: Any = world.children[effect_id]
        response = world.keep({"number": 7})
        world.children[effect_id] = effect.State(
            status=status, run_id=world.run_id, step="pr", key=made.key, arguments=made.arguments, response=response
        )
        return fork(world, effects={made.key: effect_id}), effect_id

    def test_a_write_of_the_parent_is_taken_over_and_never_sent_again(self) -> None:
        child, effect_id = self.forked("succeeded")
        assert child.open_id("pr") == effect_id
        child.advance()
        assert child.state.step("after").status == "queued"
        assert '"number": 7' in child.prompt("after")

    def test_so_is_one_whose_key_holds_the_parents_own_id(self) -> None:
        child, effect_id = self.forked("succeeded", "pr:{{run_id}}:{{state.branch}}")
        assert child.open_id("pr") == effect_id

    def test_one_in_doubt_stays_in_doubt(self) -> None:
        child, _ = self.forked("in_doubt")
        child.advance()
        assert child.state.status == "suspended"
        assert (child.state.reason or "").startswith("in_doubt")

    def test_one_that_may_still_be_made_is_waited_for(self) -> None:
        child, _ = self.forked("pending")
        assert child.advance().state.step("pr").status == "writing"

    @pytest.mark.parametrize("status", ["failed", "cancelled"])
    def test_one_that_surely_was_not_made_is_the_forks_own(self, status: str) -> None:
        child, effect_id = self.forked(status)
        child.advance()
        assert child.state.step("pr").status == "writing"
        assert child.open_id("pr") != effect_id
        assert child.written("pr", {"number": 8}).state.step("pr").status == "succeeded"


def test_who_may_not_operate_a_run_may_not_fork_it() -> None:
    for principal, status in ((STRANGER, 404), (STRANGER.model_copy(update={"projects": frozenset({"core"})}), 403)):
        with pytest.raises(Rejected) as error:
            fork(built(), principal=principal)
        assert error.value.status == status


def test_another_start_is_not_taken_for_the_fork() -> None:
    child = fork(built())
    with pytest.raises(Rejected) as error:
        child.command(
            run.Restart(
                run_id=child.run_id,
                parent_id=uuid4(),
                parent=child.state,
                principal=DEVELOPER,
                evidence=run.Evidence(tenant_group=GROUP, bundle=child.bundle),
                bundle=BUNDLE,
            )
        )
    assert error.value.code == "run.key_reused"

"""Whatever happens to a run, in whatever order and however often: every edge is one of the table."""

from contextlib import suppress
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.base import Event
from contracts.errors import Rejected
from libs.domain import run
from libs.domain.core import Decided
from libs.domain.lifecycle import RUN, STEP
from tests.support.runs import DEVELOPER, World, agent, both, bundle_of, review, write

CLASSES = ("default", "connector_unavailable", "timeout", "output_invalid")
OUTCOMES = ("approve", "request_changes", "reject", "cancel")


class Watched(World):
    """A world that holds every fact against the tables of edges."""

    def take(self, decided: Decided) -> None:
        before = self.state
        for event in decided.events:
            after = run.evolve(before, event)
            self._hold(before, after, event)
            before = after
        super().take(decided)

    def _hold(self, before: run.State, after: run.State, event: Event) -> None:
        if after.status != before.status:
            assert after.status in RUN[before.status], f"run {before.status} -> {after.status} by {event!r}"
        for key in after.steps:
            old, new = before.step(key), after.step(key)
            if new.status != old.status:
                assert new.status in STEP[old.status], f"step {key} {old.status} -> {new.status} by {event!r}"
            assert new.loops <= 2
            assert new.attempts >= old.attempts
        assert after.cost_microdollars >= before.cost_microdollars, "no money is forgotten"


class RunMachine(RuleBasedStateMachine):
    """Children end in any way and people operate, all at any time and more than once."""

    @initialize(
        action=st.sampled_from(["retry_backoff", "suspend", "fail"]), loop_max=st.integers(min_value=1, max_value=2)
    )
    def begin(self, action: str, loop_max: int) -> None:
        self.world = Watched(
            bundle_of(
                agent("analysis"),
                review("approval", artifact="analysis"),
                both("build", agent("back"), agent("front")),
                agent("check", gate="findings == 0", loop_to="build", loop_max=loop_max),
                review("release", artifact="check"),
                write("pr", args_from="check.output.pr", requires_decision="release"),
                on_failure={"default": action, "connector_unavailable": "retry_backoff"},
            )
        )
        self.world.start()

    def _open(self, *kinds: str) -> list[str]:
        return [
            key for key, r in self.world.state.steps.items() if r.status in kinds and r.open_id in self.world.children
        ]

    @rule(data=st.data(), findings=st.integers(min_value=0, max_value=1))
    def an_attempt_succeeds(self, data: st.DataObject, findings: int) -> None:
        if open_ := self._open("queued"):
            self.world.succeed(data.draw(st.sampled_from(open_)), {"findings": findings, "pr": {"title": "t"}})

    @rule(data=st.data(), failure_class=st.sampled_from(CLASSES))
    def something_fails(self, data: st.DataObject, failure_class: str) -> None:
        if open_ := self._open("queued", "writing"):
            self.world.fail(data.draw(st.sampled_from(open_)), failure_class)

    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def a_person_answers(self, data: st.DataObject, outcome: str) -> None:
        if open_ := self._open("waiting"):
            step = data.draw(st.sampled_from(open_))
            if outcome in self.world.children[self.world.open_id(step)].outcomes:  # type: ignore[union-attr]
                self.world.answer(step, outcome)

    @rule()
    def the_target_answers(self) -> None:
        for step in self._open("writing"):
            self.world.written(step, {"number": 1})

    @rule(seconds=st.sampled_from([0, 3, 300]))
    def a_message_or_a_wake_comes(self, seconds: int) -> None:
        self.world.advance(later=timedelta(seconds=seconds))

    @rule(what=st.sampled_from(["cancel", "suspend", "resume"]))
    def a_person_operates(self, what: str) -> None:
        world = self.world
        command: run.RunCommand
        match what:
            case "cancel":
                command = run.Cancel(principal=DEVELOPER, reason="enough")
            case "suspend":
                command = run.Suspend(principal=DEVELOPER, reason="pause")
            case _:
                command = run.Resume(run_id=world.run_id, principal=DEVELOPER, evidence=world.evidence())
        self._try(command)

    @precondition(lambda self: hasattr(self, "world"))
    @rule(data=st.data())
    def a_person_retries(self, data: st.DataObject) -> None:
        failed = [key for key, r in self.world.state.steps.items() if r.status == "failed"]
        if failed:
            step = data.draw(st.sampled_from(failed))
            self._try(
                run.RetryStep(run_id=self.world.run_id, step=step, principal=DEVELOPER, evidence=self.world.evidence())
            )

    def _try(self, command: run.RunCommand) -> None:
        with suppress(Rejected):  # a no is an answer; anything else is a bug
            self.world.take(run.decide(command, self.world.state, self.world.now))

    @invariant()
    def looking_twice_says_nothing_new(self) -> None:
        if hasattr(self, "world"):
            self.world.advance()
            settled = len(self.world.types)
            self.world.advance()
            assert len(self.world.types) == settled, f"still talking: {self.world.types[settled:]}"

    @invariant()
    def a_running_run_waits_for_something_that_comes(self) -> None:
        if hasattr(self, "world") and self.world.state.status == "running":
            open_ = [r for r in self.world.state.steps.values() if r.status in {"queued", "writing", "retrying"}]
            assert open_, "running, and nothing that could move it on"
            assert run.CATEGORY.wake_at(self.world.state, self.world.now) is not None


RunMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestRun = RunMachine.TestCase

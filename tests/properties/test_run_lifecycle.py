"""Whatever happens to a run, in whatever order and however often: every edge is one of the table.

The definitions are drawn as well: any kinds of steps in any order, with any failure mapping, under a key or not.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from contracts.base import BlobRef, Event
from contracts.errors import Rejected
from contracts.events import admission as a
from contracts.events.run import RunStepInherited, RunStepWriting
from libs.domain import decision, run
from libs.domain.core import Decided
from libs.domain.lifecycle import RUN, STEP
from libs.domain.run.state import UNDER_WAY
from libs.eventstore.snapshots import Kept, Snapshots
from libs.language.model import Concurrency, ForEach, Step, Wait
from tests.support.runs import (
    DEVELOPER,
    World,
    agent,
    both,
    bundle_of,
    event,
    gate,
    manual,
    review,
    write,
)

CLASSES: Final = ("default", "connector_unavailable", "timeout", "output_invalid")
ACTIONS: Final = ("retry_backoff", "suspend", "fail", "escalate")
OUTCOMES: Final = ("approve", "approve", "approve", "request_changes", "reject", "cancel")
HOUR: Final = timedelta(hours=1)
SNAPSHOTS: Final = Snapshots(run.CATEGORY)
LOOPS_MAX: Final = 2

SEGMENTS: Final[dict[str, Callable[[str], tuple[Step, ...]]]] = {
    "agent": lambda key: (agent(key, wait=Wait(for_=HOUR / 60)),),
    "gated": lambda key: (agent(key, gate="findings == 0", loop_to="plan", loop_max=LOOPS_MAX),),
    "gate": lambda key: (gate(key, "steps.plan.findings == 0"),),
    "loop": lambda key: (gate(key, "steps.plan.findings == 0", loop_to="plan", loop_max=LOOPS_MAX),),
    "manual": lambda key: (manual(key, timeout=HOUR),),
    "event": lambda key: (event(key, timeout=HOUR, wait=Wait(until="steps.plan.at")),),
    "all": lambda key: (both(key, agent("left"), agent("right", wait=Wait(for_=HOUR))),),
    "any": lambda key: (both(key, agent("left"), agent("right"), join="any"),),
    "items": lambda key: (agent(key, for_each=ForEach(items="steps.plan.parts", max_parallel=2)),),
    "decision": lambda key: (review(key, artifact="plan", timeout=HOUR),),
    "write": lambda key: (
        review(f"{key}_ok", artifact="plan"),
        write(key, effect_key=f"{key}:{{{{run_id}}}}", requires_decision=f"{key}_ok"),
    ),
    "writes": lambda key: (
        review(f"{key}_ok", artifact="plan"),
        write(
            key,
            for_each=ForEach(items="steps.plan.parts"),
            args_from="item",
            effect_key=f"{key}:{{{{index}}}}",
            requires_decision=f"{key}_ok",
        ),
    ),
}


@dataclass
class Watched(World):
    """A world that holds every fact against the tables of edges, and keeps them."""

    facts: list[Event] = field(default_factory=list)

    def take(self, decided: Decided) -> None:
        before = self.state
        self.facts += decided.events
        for fact in decided.events:
            after = run.evolve(before, fact)
            self._hold(before, after, fact)
            before = after
        super().take(decided)

    def _hold(self, before: run.State, after: run.State, fact: Event) -> None:
        if after.status != before.status:
            assert after.status in RUN[before.status], f"run {before.status} -> {after.status} by {fact!r}"
        for key in after.steps:
            old, new = before.step(key), after.step(key)
            if new.status != old.status:
                assert new.status in STEP[old.status], f"step {key} {old.status} -> {new.status} by {fact!r}"
            assert new.loops <= LOOPS_MAX
            assert new.attempts >= old.attempts
        assert after.cost_microdollars >= before.cost_microdollars, "no money is forgotten"


class RunMachine(RuleBasedStateMachine):
    """Children end in any way and people operate, all at any time and more than once."""

    @initialize(
        segments=st.lists(st.sampled_from(sorted(SEGMENTS)), max_size=5),
        default=st.sampled_from(ACTIONS),
        on_timeout=st.sampled_from(ACTIONS),
        on_gate=st.sampled_from(ACTIONS),
        keyed=st.sampled_from([False, False, True]),
    )
    def begin(self, segments: list[str], default: str, on_timeout: str, on_gate: str, keyed: bool) -> None:
        steps = [step for at, name in enumerate(segments) for step in SEGMENTS[name](f"s{at}")]
        self.world = Watched(
            bundle_of(
                agent("plan"),
                *steps,
                on_failure={"default": default, "timeout": on_timeout, "gate_failed": on_gate},
                concurrency=Concurrency() if keyed else None,
            )
        )
        self.world.start()

    def _open(self, *kinds: str, on: str | None = None) -> list[str]:
        return [
            key
            for key, record in self.world.state.steps.items()
            if record.status in kinds
            and (on is None or record.waits_on == on)
            and (on == "manual" or record.open_id in self.world.children)
        ]

    def _output(self, findings: int, parts: int) -> Any:
        at = (self.world.now + HOUR * findings).isoformat()
        return {"findings": findings, "parts": [{"n": n} for n in range(parts)], "at": at}

    @rule(findings=st.integers(min_value=0, max_value=1), parts=st.integers(min_value=0, max_value=3))
    def all_goes_well(self, findings: int, parts: int) -> None:
        """Whatever is open comes to a good end: what leads deep into a definition."""
        world = self.world
        if world.state.status == "suspended":
            with suppress(Rejected):
                world.resume()
        if world.state.status == "created" and not world.state.started:
            self.the_key_says("granted")
        for step, record in world.state.steps.items():
            if world.state.step(step).status != record.status or record.holds_others:
                continue
            match record.status, record.waits_on:
                case "queued", _:
                    world.succeed(step, self._output(findings, parts))
                case "writing", _:
                    world.written(step, {"number": 1})
                case "waiting", "manual":
                    with suppress(Rejected):
                        world.complete(step, {"done": True})
                case "waiting", "event":
                    world.matched(step, {"n": 1})
                case "waiting", _:
                    world.answer(step, "approve")
                case (("delayed" | "retrying"), _):
                    world.advance(later=HOUR / 4)

    @rule(data=st.data(), findings=st.integers(min_value=0, max_value=1), parts=st.integers(min_value=0, max_value=3))
    def an_attempt_succeeds(self, data: st.DataObject, findings: int, parts: int) -> None:
        if open_ := self._open("queued"):
            self.world.succeed(data.draw(st.sampled_from(open_)), self._output(findings, parts))

    @rule(data=st.data(), failure_class=st.sampled_from(CLASSES))
    def something_fails(self, data: st.DataObject, failure_class: str) -> None:
        if open_ := self._open("queued", "writing"):
            self.world.fail(data.draw(st.sampled_from(open_)), failure_class)

    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def a_person_answers(self, data: st.DataObject, outcome: str) -> None:
        open_ = self._open("waiting", on="decision") + self._open("waiting", on="escalation")
        if open_:
            step = data.draw(st.sampled_from(open_))
            child = self.world.children[self.world.open_id(step)]
            assert isinstance(child, decision.State)
            if outcome in child.outcomes:
                self.world.answer(step, outcome, comment="so")

    @rule()
    def changes_are_requested(self) -> None:
        for step in self._open("waiting", on="decision"):
            self.world.answer(step, "request_changes", comment="more")

    @rule()
    def a_person_completes(self) -> None:
        for step in self._open("waiting", on="manual"):
            with suppress(Rejected):
                self.world.complete(step, {"done": True})

    @rule()
    def an_event_comes(self) -> None:
        for step in self._open("waiting", on="event"):
            self.world.matched(step, {"n": 1})

    @rule()
    def the_target_answers(self) -> None:
        for step in self._open("writing"):
            self.world.written(step, {"number": 1})

    @rule(what=st.sampled_from(["granted", "granted", "queued", "queued", "superseded", "refused"]))
    def the_key_says(self, what: str) -> None:
        world = self.world
        at: Any = {"at": world.now, "run_id": world.run_id}
        of: Any = {"definition_id": "trial", "key": "", "limit": 1}
        if world.state.admission is None or world.state.started:
            return
        if isinstance(world.verdict, a.AdmissionQueued | None):
            match what:
                case "granted":
                    world.verdict = a.AdmissionGranted(**at, **of)
                case "queued":
                    world.verdict = a.AdmissionQueued(**at, **of, mode="queue")
                case "superseded":
                    world.verdict = a.AdmissionSuperseded(**at, by=world.run_id)
                case _:
                    world.verdict = a.AdmissionRefused(**at, reason="full")
        world.advance()

    @rule(seconds=st.sampled_from([0, 3, 300, 3600]))
    def a_message_or_a_wake_comes(self, seconds: int) -> None:
        self.world.advance(later=timedelta(seconds=seconds))

    @rule(what=st.sampled_from(["suspend", "resume", "suspend", "resume", "suspend", "resume", "cancel"]))
    def a_person_operates(self, what: str) -> None:
        world = self.world
        with suppress(Rejected):  # a no is an answer; anything else is a bug
            match what:
                case "cancel":
                    world.command(run.Cancel(principal=DEVELOPER, reason="enough"))
                case "suspend":
                    world.suspend()
                case _:
                    world.resume()

    @rule(data=st.data(), changed=st.booleans())
    def a_person_forks(self, data: st.DataObject, changed: bool) -> None:
        """From any version: the fork inherits what had succeeded there, plans on, and writes nothing again."""
        world = self.world
        version = data.draw(st.integers(min_value=1, max_value=len(world.facts)))
        parent, at_version = run.point(world.facts, at_version=version, from_step=None)
        made = {f.effect_key: f.effect_id for f in world.facts if isinstance(f, RunStepWriting)}
        forked = Watched(world.bundle, now=world.now, children=dict(world.children), artefacts=world.artefacts)
        evidence = forked.evidence()
        forked.command(
            run.Fork(
                run_id=forked.run_id,
                parent_id=world.run_id,
                parent=parent,
                at_version=at_version,
                effects=made,
                principal=DEVELOPER,
                evidence=evidence,
                bundle=BlobRef(digest="1" * 64, bytes=2),
                context={"changed": True} if changed else {},
                artifacts={},
            )
        )
        forked.advance()
        own = (str(forked.run_id), str(world.run_id))
        for fact in forked.facts:
            if isinstance(fact, RunStepWriting):
                assert fact.effect_id == made.get(fact.effect_key.replace(*own), fact.effect_id)
        inherited = {f.step for f in forked.facts if isinstance(f, RunStepInherited)}
        assert inherited <= {key for key, record in parent.steps.items() if record.status == "succeeded"}

    @rule(data=st.data())
    def a_person_retries(self, data: st.DataObject) -> None:
        if self.world.state.steps:
            step = data.draw(st.sampled_from(sorted(self.world.state.steps)))
            with suppress(Rejected):
                self.world.retry(step)

    @invariant()
    def looking_twice_says_nothing_new(self) -> None:
        if hasattr(self, "world"):
            self.world.advance()
            settled = len(self.world.types)
            self.world.advance()
            assert len(self.world.types) == settled, f"still talking: {self.world.types[settled:]}"

    @invariant()
    def a_run_waits_for_something_that_comes(self) -> None:
        if not hasattr(self, "world"):
            return
        state, wake_at = self.world.state, run.CATEGORY.wake_at(self.world.state, self.world.now)
        open_ = [r for r in state.steps.values() if r.status in UNDER_WAY and not r.holds_others]
        match state.status:
            case "running":
                assert any(r.status in {"queued", "writing", "retrying"} for r in open_), "nothing could move it on"
                assert wake_at is not None
            case "waiting_decision" | "waiting_event" | "waiting_timer":
                assert open_
                assert {r.status for r in open_} <= {"waiting", "delayed"}
                due = [r.not_before if r.status == "delayed" else r.until for r in open_]
                assert wake_at == min((moment for moment in due if moment is not None), default=None)
            case "created":
                assert state.admission is not None
                assert (wake_at is None) == state.held
            case "completed":
                assert not open_, "something is still under way"
            case _:
                pass

    @invariant()
    def it_comes_back_from_a_snapshot(self) -> None:
        if hasattr(self, "world"):
            kept = Kept(self.world.state)
            back = SNAPSHOTS.read(SNAPSHOTS.write(kept))
            assert back == kept
            assert list(back.state.steps) == list(kept.state.steps), "their order is what they were reached in"

    @invariant()
    def a_place_is_given_back_with_the_end(self) -> None:
        if hasattr(self, "world") and not isinstance(self.world.verdict, a.AdmissionRefused):
            ended = self.world.state.status in {"completed", "failed", "cancelled", "superseded"}
            assert not (ended and self.world.state.admission), self.world.state.status

    @invariant()
    def no_event_is_taken_twice(self) -> None:
        if hasattr(self, "world"):
            assert len(set(self.world.state.consumed)) == len(self.world.state.consumed)


RunMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestRun = RunMachine.TestCase

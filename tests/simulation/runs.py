"""Judges runs: each once per trigger, its steps by the edges of their own, what it takes and takes over."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from libs.eventstore.port import Recorded
from tests.simulation import tables
from tests.simulation.streams import Stream
from tests.simulation.violation import Violation


@dataclass(slots=True)
class Runs:
    """Follows the facts of runs. `started` are the definitions of the runs that each event has started."""

    started: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _triggered: set[tuple[UUID, str, str]] = field(default_factory=set)

    def judge(self, run: Stream, recorded: Recorded, parent: Stream | None) -> None:
        """A fact of a run."""
        event: Any = recorded.event
        if recorded.type in {"run.suspended", "run.resumed", "run.cancelled"}:
            by_doubt = recorded.type == "run.suspended" and event.by is None and event.failure_class is None
            run.doubted = event.step if by_doubt else None
        if recorded.type == "run.step_writing":
            run.writing[event.step] = event.effect_id
        if recorded.type == "run.created":
            run.definition_id, run.key = event.definition_id, str(event.context.get("key", ""))
        match recorded.type:
            case "run.created" if event.trigger.key is not None:
                key = (recorded.metadata.tenant_group, event.definition_id, event.trigger.key)
                if key in self._triggered:
                    raise Violation(f"one trigger key started two runs: {key[1]} {key[2]}")
                self._triggered.add(key)
                self.started[event.trigger.key.partition(":")[2]].append(event.definition_id)
            case "run.forked":
                run.inherited = event.effects
                assert parent is not None
                run.era = min(run.era, parent.era)
            case "run.event_taken":
                if event.inbound_id in run.taken:
                    raise Violation(f"a run took one event twice: {event.inbound_id}")
                run.taken.add(event.inbound_id)
            case "run.looped":
                for step in event.reset:
                    if step in run.steps:
                        self._step(run, step, "pending", recorded)
            case "run.cancelled":
                for step, state in list(run.steps.items()):
                    if state in tables.STEP_OPEN:
                        self._step(run, step, "cancelled", recorded)
            case "run.approval_expired":
                for step in (event.step, event.write):
                    if run.steps.get(step, "pending") not in {"pending", "delayed"}:
                        self._step(run, step, "pending", recorded)
            case type_ if type_ in tables.STEP_AFTER:
                self._step(run, event.step, tables.STEP_AFTER[type_], recorded)
                if (until := getattr(event, "until", None) or getattr(event, "not_before", None)) is not None:
                    run.moments.add(until)
                if type_ == "run.manual_opened":
                    run.manual.add(event.step)

    @staticmethod
    def _step(run: Stream, step: str, after: str, recorded: Recorded) -> None:
        before = run.steps.get(step, "pending")
        if after not in tables.STEP.get(before, frozenset()):
            raise Violation(
                f"no such edge of a step: {before} -> {after} of {step} by {recorded.type} v{recorded.version}"
            )
        run.steps[step] = after
        run.manual.discard(step)

"""Judges what happened by what was promised, and by nothing that the code believes.

It reads the facts as they are written, keeps states of its own, and is told what callers were answered and what
reached the target. Every sentence that it can break the simulation with is a promise of the product.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from libs.eventstore.memory import Head, MemoryStore
from libs.eventstore.port import Recorded
from tests.simulation import tables
from tests.simulation.awaited import Awaited
from tests.simulation.effects import Effects
from tests.simulation.places import Places
from tests.simulation.runs import Runs
from tests.simulation.streams import Stream
from tests.simulation.violation import Violation

WATCHDOG: Final = timedelta(seconds=60)
CLOCK_MAY_GO_BACK: Final = timedelta(seconds=30)
CANCEL_REACHES_WITHIN_SECONDS: Final = 10.0
PARKED_AFTER_SECONDS: Final = 90.0
"""One stale wake after parking is fine; by now it has come."""


@dataclass(slots=True)
class Known:
    """What the auditor knows from the facts alone: a restored record takes it back."""

    streams: dict[UUID, Stream] = field(default_factory=dict)
    caused: set[UUID] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    runs: Runs = field(default_factory=Runs)
    places: Places = field(default_factory=Places)
    awaited: Awaited = field(default_factory=Awaited)


class Auditor:
    """Sees every fact once, in order. `seconds` tells the simulation's time."""

    def __init__(self, store: MemoryStore, seconds: Callable[[], float]) -> None:
        self._store = store
        self._seconds = seconds
        self._read = 0
        self._known = Known()
        self._refused: dict[UUID, str] = {}
        self._accepted: dict[str, str | None] = {}
        self._executed: set[UUID] = set()
        self._executing: dict[UUID, UUID] = {}
        self.effects = Effects(self._known.streams, seconds)

    @property
    def streams(self) -> Mapping[UUID, Stream]:
        """Where each stream stands."""
        return self._known.streams

    # What is written

    def look(self) -> None:
        """Judge the facts that were written since the last look, and the heads of their streams."""
        history = self._store.history
        if self._read == len(history):
            return
        changed: dict[UUID, str] = {}
        while self._read < len(history):
            recorded = history[self._read]
            self._read += 1
            self._take(recorded)
            changed[recorded.stream_id] = recorded.category
        for stream_id, category in changed.items():
            self._judge_head(stream_id, category)

    def _take(self, recorded: Recorded) -> None:
        stream = self._known.streams.setdefault(recorded.stream_id, Stream(recorded.category, recorded.era))
        where = f"{recorded.type} v{recorded.version} of {recorded.stream_id}"
        if recorded.version != stream.version + 1:
            raise Violation(f"the history of a stream has a gap or a double: {where} after v{stream.version}")
        stream.version, stream.digest = recorded.version, recorded.digest
        stream.changed_at_seconds = self._seconds()
        causation = recorded.metadata.causation
        self._known.caused.add(causation)
        if causation in self._refused:
            raise Violation(f"a command that was refused ({self._refused[causation]}) was done later: {where}")
        before = stream.state
        after = tables.state_after(recorded.type, recorded.event)
        if after is not None:
            unstarted_lost = recorded.type == "attempt.lease_lost" and before == "queued"
            if after not in tables.EDGES[stream.category].get(before, frozenset()) and not unstarted_lost:
                raise Violation(f"no such edge of {stream.category}: {before} -> {after} by {where}")
            stream.state = after
        stream.states.append(stream.state)
        judge = _JUDGES.get(stream.category)
        if judge is not None:
            judge(self, stream, recorded, before)

    def _judge_run(self, run: Stream, recorded: Recorded, _before: str) -> None:
        self._known.places.judge_run(recorded)
        event: Any = recorded.event
        parent = self.streams[event.parent] if recorded.type == "run.forked" else None
        self._known.runs.judge(run, recorded, parent)
        if recorded.type in {"run.step_failed", "run.step_skipped"}:
            run.told_as = self._read
        elif recorded.type == "run.completed":
            self._judge_left_open(run, recorded)

    def _judge_left_open(self, run: Stream, completed: Recorded) -> None:
        """Nobody looks for that when a run completes: they were told before, or their own clock tells them."""
        for stream_id, stream in self.streams.items():
            if stream.run_id == completed.stream_id and stream.state in tables.ASKING.get(stream.category, ()):
                until = getattr(stream.asked, "until", None)
                if run.told_as < stream.opened_as and (until is None or until > completed.event.at):
                    raise Violation(f"a completed run left {stream.category} {stream_id} open, and nobody hears of it")

    def _judge_admission(self, key: Stream, recorded: Recorded, before: str) -> None:
        key.state = self._known.places.judge_key(recorded)
        if key.state not in tables.ADMISSION.get(before, frozenset()) | {before}:
            raise Violation(f"no such edge of a key: {before} -> {key.state} by {recorded.type}")

    def _judge_wait(self, wait: Stream, recorded: Recorded, _before: str) -> None:
        event: Any = recorded.event
        if recorded.type == "wait.opened":
            wait.run_id, wait.opened_as = event.run_id, self._read
        self._known.awaited.judge_wait(recorded)

    def _judge_inbound(self, _inbound: Stream, recorded: Recorded, _before: str) -> None:
        event: Any = recorded.event
        self._known.awaited.judge_event(recorded)
        if recorded.type == "inbound.received":
            if event.external_id in self._known.received:
                raise Violation(f"one event was recorded twice: {event.external_id}")
            self._known.received.add(event.external_id)

    def _judge_attempt(self, attempt: Stream, recorded: Recorded, before: str) -> None:
        event: Any = recorded.event
        where = f"{recorded.type} v{recorded.version} of {recorded.stream_id}"
        match recorded.type:
            case "attempt.queued":
                attempt.run_id = event.run_id
            case "attempt.started":
                if event.claim in attempt.lost_claims:
                    raise Violation(f"a claim whose lease was lost started its attempt: {where}")
                attempt.claim = event.claim
            case "attempt.lease_lost":
                if before == "running" and event.claim != attempt.claim:
                    raise Violation(f"the lease of another claim was lost: {where}")
                attempt.lost_claims.add(event.claim)
            case "attempt.succeeded" | "attempt.failed":
                if event.claim != attempt.claim and event.claim not in attempt.lost_claims:
                    raise Violation(f"a report with an old claim was written: {where}")
                if recorded.type == "attempt.succeeded" and event.claim in attempt.lost_claims:
                    raise Violation(f"a report came after its lease was lost: {where}")

    def _judge_decision(self, decision: Stream, recorded: Recorded, _before: str) -> None:
        event: Any = recorded.event
        match recorded.type:
            case "decision.opened":
                decision.run_id = event.run_id
                decision.shown = event.artifact.digest if event.artifact else None
                decision.asked, decision.opened_as = event, self._read
            case "decision.voted":
                self._must_be_active(decision, "a vote was taken")
                if event.by.name in decision.voted:
                    raise Violation(f"one person has two votes: {event.by.name}")
                decision.voted.append(event.by.name)
            case "decision.answered":
                self._must_be_active(decision, "a decision was answered")
                if (event.artifact.digest if event.artifact else None) != decision.shown:
                    raise Violation(f"an answer is bound to another artefact than the one shown: {recorded.stream_id}")
                if [vote.by.name for vote in event.votes[:-1]] != decision.voted:
                    raise Violation(f"votes were lost, or counted that nobody gave: {recorded.stream_id}")
                approvals = sum(vote.outcome == "approve" for vote in event.votes)
                if event.votes and event.outcome == "approve" and approvals < decision.asked.quorum.need:
                    raise Violation(f"{approvals} approvals were taken for enough: {recorded.stream_id}")

    def _must_be_active(self, stream: Stream, what: str) -> None:
        run = self.streams[stream.run_id] if stream.run_id else None
        if run is None or run.state not in tables.RUN_ACTIVE:
            raise Violation(f"{what} while its run was {run.state if run else 'absent'}")

    def _judge_head(self, stream_id: UUID, category: str) -> None:
        stream, head = self.streams[stream_id], self._store.rows[category].get(stream_id)
        if head is None:
            raise Violation(f"a {category} stream has no head row: {stream_id}")
        if (head.version, head.digest) != (stream.version, stream.digest):
            raise Violation(f"the head row of {category} {stream_id} is not at the end of its stream")
        if category in tables.EDGES and head.state != stream.state:
            raise Violation(f"the head row of {category} {stream_id} says {head.state}, the facts {stream.state}")
        self._judge_wake(stream_id, category, head)

    def _judge_wake(self, stream_id: UUID, category: str, head: Head) -> None:
        """Whatever works is looked at by the clock; nothing is parked on a message alone."""
        limit: timedelta | None = None
        match category, head.state:
            case "run", "created" | "running":
                limit = WATCHDOG
            case "effect", "declared":
                limit = WATCHDOG
            case "effect", "pending":
                limit = timedelta(seconds=150)
            case "attempt", "running":
                limit = timedelta(seconds=90)
        if category == "run" and self._known.places.is_held(stream_id):
            limit = None
        if limit is None:
            return
        if head.wake_at is None:
            raise Violation(f"a {category} that is {head.state} has nothing to wake it")
        if head.wake_at > self._store.clock + limit + CLOCK_MAY_GO_BACK:
            raise Violation(f"a {category} that is {head.state} is looked at no earlier than {head.wake_at}")

    # What callers were told

    def told(self, stream_id: UUID, version: int, state: str) -> None:
        """A caller was told that its run stands so."""
        stream = self.streams.get(stream_id)
        if stream is None or stream.version < version:
            raise Violation(f"a caller was told of version {version} of {stream_id}, which is not in the history")
        if stream.states[version - 1] != state:
            raise Violation(f"a caller was told {state}, the history says {stream.states[version - 1]}")

    def answered(self, decision_id: UUID, command_id: UUID, outcome: str) -> None:
        """A person was told that this answer counts."""
        for recorded in self._store.history:
            if recorded.stream_id != decision_id or recorded.type not in {"decision.voted", "decision.answered"}:
                continue
            event: Any = recorded.event
            said = event.votes[-1].outcome if getattr(event, "votes", ()) else event.outcome
            if event.command_id == command_id and said == outcome:
                return
            if recorded.type == "decision.answered":
                raise Violation(f"two people were told that their answer to {decision_id} counts")
        raise Violation(f"an answer that was taken is not in the history: {decision_id}")

    def refused(self, command_id: UUID, code: str) -> None:
        """A caller was told no. What was done because of its command would make that a lie."""
        if command_id in self._known.caused:
            raise Violation(f"a caller was refused ({code}) what it had done: command {command_id}")
        self._refused[command_id] = code

    def settled(self, effect_id: UUID, command_id: UUID, verdict: str) -> None:
        """An operator was told that this verdict counts."""
        self.look()
        facts = (recorded.event for recorded in self._store.history if recorded.stream_id == effect_id)
        verdicts = {getattr(event, "command_id", None): getattr(event, "verdict", None) for event in facts}
        if verdicts.get(command_id) != verdict:
            raise Violation(f"a verdict that was taken is not in the history: {effect_id}")

    def accepted(self, external_id: str, definition_id: str | None) -> None:
        """A source was told that its event was taken; it starts this workflow, or none."""
        self._accepted[external_id] = definition_id

    # A restored record

    def remember(self) -> Known:
        """What the facts say until now, as a dump of the database holds them."""
        self.look()
        return deepcopy(self._known)

    def set_back(self, known: Known) -> Mapping[str, str | None]:
        """The record was set back to what it held when `known` was remembered.

        Returns the events that were accepted and are in it no more, with the workflow that each was to start: what was
        told of the lost time is lost, and no more than that.
        """
        streams = self._known.streams
        self._known = deepcopy(known)
        streams.clear()
        streams.update(self._known.streams)
        self._known.streams = streams
        self._read = len(self._store.history)
        self.effects.restored()
        held = self._known.received | {delivery.external_id for delivery in self._store._deliveries.values()}
        lost = {i: definition_id for i, definition_id in self._accepted.items() if i not in held}
        self._accepted = {i: self._accepted[i] for i in self._accepted if i in held}
        return lost

    # What is executed

    def executes(self, attempt_id: UUID, claim: UUID) -> None:
        """An executor begins."""
        if claim in self._executed:
            raise Violation(f"one claim was carried out twice: {attempt_id}")
        self._executed.add(claim)
        self._executing[claim] = attempt_id
        attempt = self.streams[attempt_id]
        if attempt.claim != claim and claim not in attempt.lost_claims:
            raise Violation(f"an attempt is carried out under a claim that nothing records: {attempt_id}")

    def stops(self, claim: UUID) -> None:
        """An executor has ended, one way or another."""
        self._executing.pop(claim, None)

    # How it ends

    def unsettled(self) -> list[str]:
        """What still has to happen by itself. Empty: everything waits for a person, or is over."""
        open_: dict[UUID, int] = defaultdict(int)
        found: list[str] = []
        for stream_id, stream in self.streams.items():
            run = self.streams.get(stream.run_id) if stream.run_id else None
            run_state = run.state if run else ""
            match stream.category, stream.state:
                case "run", "created" if self._known.places.may_wait(stream_id):
                    pass
                case "run", "created" | "running" | "waiting_event" | "waiting_timer":
                    found.append(f"run {stream_id} is {stream.state}, steps {stream.steps}")
                case "wait", "opening" | "open" if run_state in tables.RUN_OVER:
                    found.append(f"wait {stream_id} is {stream.state}, its run {run_state}")
                case "admission", _:
                    over = [i for i in self._known.places.named(stream_id) if self.streams[i].state in tables.RUN_OVER]
                    found += [f"run {i} is over and has a place under key {stream_id}" for i in over]
                case "attempt", "running":
                    found.append(f"attempt {stream_id} is running, its run {run_state}")
                case "attempt", "queued" if run_state in tables.RUN_ACTIVE:
                    found.append(f"attempt {stream_id} is queued, its run {run_state}")
                case "run", "suspended" if stream.doubted is not None:
                    doubt = self.streams[stream.writing[stream.doubted]].state
                    found.append(f"run {stream_id} is suspended for a doubt, its write is {doubt}")
                case "effect", "pending" | "in_doubt":
                    found.append(f"effect {stream_id} is {stream.state}, its run {run_state}")
                case "effect", "declared" if stream.of or run_state in tables.RUN_ACTIVE | {"cancelled", "completed"}:
                    found.append(f"effect {stream_id} is declared, its run {run_state}")
                case "decision", "open" if run_state in tables.RUN_OVER:
                    found.append(f"decision {stream_id} is open, its run {run_state}")
                case "decision", "open" if stream.run_id is not None:
                    open_[stream.run_id] += 1
        for stream_id, stream in self.streams.items():
            if stream.category == "run" and stream.state == "waiting_decision":
                asked = open_[stream_id]
                found.append(f"run {stream_id} waits for a decision, {asked} are open, steps {stream.steps}")
        lost = sorted(self._accepted.keys() - self._known.received)
        found += [f"event {external_id} was accepted and is not recorded" for external_id in lost]
        for category, rows in self._store.rows.items():
            for stream_id, head in rows.items():
                if head.wake_at is not None and head.wake_at <= self._store.clock - WATCHDOG:
                    found.append(f"{category} {stream_id} has been due since {head.wake_at}")
        return found

    def judge_calm(self, calm_seconds: float) -> None:
        """What holds once nothing has gone wrong for a while."""
        now = self._seconds()
        for attempt_id in self._executing.values():
            run = self.streams[self.streams[attempt_id].run_id or attempt_id]
            late = min(now - run.changed_at_seconds, calm_seconds)
            if run.state == "cancelled" and late > CANCEL_REACHES_WITHIN_SECONDS:
                raise Violation(f"a session goes on {late:.0f} s after its run was cancelled: {attempt_id}")
        for stream_id, run in self.streams.items():
            parked = run.category == "run" and (run.state == "suspended" or run.state.startswith("waiting_"))
            if parked and min(now - run.changed_at_seconds, calm_seconds) > PARKED_AFTER_SECONDS:
                wake_at = self._store.rows["run"][stream_id].wake_at
                if wake_at is not None and wake_at not in run.moments:
                    raise Violation(f"a run that is {run.state} is woken by the clock at {wake_at}: {stream_id}")

    def close(self, fold: Callable[[str, tuple[Recorded, ...]], tuple[str, Mapping[str, Any]]]) -> None:
        """Everything is settled: the last checks. `fold` is the product's own: (state, columns) of a stream."""
        self.look()
        for external_id, definition_id in self._accepted.items():
            if self._known.runs.started[external_id] != ([] if definition_id is None else [definition_id]):
                raise Violation(
                    f"event {external_id} for {definition_id} started {self._known.runs.started[external_id]}"
                )
        by_stream: defaultdict[UUID, list[Recorded]] = defaultdict(list)
        for recorded in self._store.history:
            by_stream[recorded.stream_id].append(recorded)
        for stream_id, facts in by_stream.items():
            head = self._store.rows[facts[0].category][stream_id]
            state, columns = fold(facts[0].category, tuple(facts))
            if (head.state, dict(head.columns)) != (state, dict(columns)):
                raise Violation(f"the head row of {facts[0].category} {stream_id} is not what its facts add up to")
        self.effects.close(self._store.era_number)


_JUDGES: Final[Mapping[str, Callable[[Auditor, Stream, Recorded, str], None]]] = {
    "run": Auditor._judge_run,
    "attempt": Auditor._judge_attempt,
    "decision": Auditor._judge_decision,
    "effect": lambda auditor, effect, recorded, _before: auditor.effects.judge(effect, recorded),
    "inbound": Auditor._judge_inbound,
    "wait": Auditor._judge_wait,
    "admission": Auditor._judge_admission,
}

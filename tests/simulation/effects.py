"""Judges effects: what the record says of each against what reached its target.

A restore of the database takes back what the record says, and nothing of what the target has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from libs.eventstore.port import Recorded
from tests.simulation import tables
from tests.simulation.catalogue import LINKED
from tests.simulation.streams import Stream
from tests.simulation.violation import Violation

CALL_STARTS_WITHIN_SECONDS: Final = 5.0
UNKNOWN_CALLS_OVER: Final = timedelta(seconds=150)
"""How long a call may be under way of which a restored record knows nothing."""

_WRITING: Final = frozenset({"pending", "in_doubt"})


@dataclass(slots=True)
class _Target:
    """What reached the target under one key since its run began.

    `lives` counts how often the record lost its run. What such a run had written is `excused`: started once more under
    the same id, it may write once more. `calls` are those that the record can know of, and `lost` says that a restore
    came after the call that wrote.
    """

    run_id: UUID
    calls: int = 0
    writes: int = 0
    under_way: int = 0
    lives: int = 0
    excused: int = 0
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """One call at the target, and how often the database had been restored by then."""

    effect_id: UUID
    life: int
    restores: int


class Effects:
    """Follows the facts of effects in `streams`, and is told of every call. `seconds` tells the simulation's time."""

    def __init__(self, streams: Mapping[UUID, Stream], seconds: Callable[[], float]) -> None:
        self._streams = streams
        self._seconds = seconds
        self._ids: dict[str, UUID] = {}
        self._targets: dict[UUID, _Target] = {}
        self._restores = 0

    # What is written

    def judge(self, effect: Stream, recorded: Recorded) -> None:
        """A fact of an effect."""
        event: Any = recorded.event
        effect_id = recorded.stream_id
        writes = self._targets[effect_id].writes if effect_id in self._targets else 0
        match recorded.type:
            case "effect.declared":
                self._declared(effect, effect_id, event)
            case "effect.pending":
                self._announced(effect, recorded)
            case "effect.in_doubt":
                self._doubted(effect, recorded)
            case "effect.failed":
                if writes:
                    raise Violation(f"an effect that was written is recorded as failed: {effect.key}")
            case "effect.succeeded":
                if event.claim != effect.claim:
                    raise Violation(f"a report of another call was taken: {effect.key}")
                if writes != 1:
                    raise Violation(f"an effect is recorded as done that was written {writes} times")
            case "effect.settled":
                self._judge_verdict(effect, self._targets.get(effect_id), event.verdict)
                effect.arm = event.arm
            case "effect.rearmed":
                effect.arm = event.arm

    def _declared(self, effect: Stream, effect_id: UUID, event: Any) -> None:
        effect.run_id, effect.key, effect.of, effect.tool = event.run_id, event.key, event.of, event.tool
        if event.of is not None:
            write = self._streams[event.of]
            if write.state != "succeeded":
                raise Violation(f"a link leads back from a write that is {write.state}: {write.key}")
            effect.key = f"{effect.key}:back_link"
        else:
            before_fork = self._streams[event.run_id].inherited.get(event.key)
            if before_fork is not None and self._streams[before_fork].state not in tables.EFFECT_NOT_DONE:
                raise Violation(f"a fork does again what was done before it, or may have been: {event.key}")
        self._ids[f"{effect.run_id}:{effect.key}"] = effect_id

    def _announced(self, effect: Stream, recorded: Recorded) -> None:
        event: Any = recorded.event
        assert effect.run_id is not None
        run = self._streams[effect.run_id]
        if effect.of is None and run.state not in tables.RUN_ACTIVE:
            raise Violation(f"a call was announced while its run was {run.state}")
        if run.era < recorded.era and effect.doubted_in != recorded.era:
            raise Violation(f"a call was announced that a restored record may have lost: {effect.key}")
        effect.claim, effect.pending_at_seconds = event.claim, self._seconds()
        effect.over_at, effect.arm = event.over_at, event.arm
        effect.pending += 1

    def _doubted(self, effect: Stream, recorded: Recorded) -> None:
        event: Any = recorded.event
        if event.claim is None:
            assert effect.run_id is not None
            if self._streams[effect.run_id].era == recorded.era:
                raise Violation(f"an effect is in doubt that no restore and no call can have made: {effect.key}")
            effect.over_at = event.at + UNKNOWN_CALLS_OVER
        elif event.claim != effect.claim:
            raise Violation(f"an effect is in doubt for another call than its last one: {effect.key}")
        effect.doubted_in = recorded.era

    @staticmethod
    def _judge_verdict(effect: Stream, target: _Target | None, verdict: str) -> None:
        """Everybody who settles says what the target shows; so what they said is true, unless it came too early."""
        if target is None:
            target = _Target(run_id=effect.run_id or UUID(int=0))
        if target.under_way:
            raise Violation(f"an effect was settled as {verdict} while its call was under way: {effect.key}")
        shown = target.writes + target.excused if verdict == "landed" else target.writes
        if bool(shown) != (verdict == "landed"):
            raise Violation(f"an effect that was written {shown} times was settled as {verdict}: {effect.key}")

    # What reached the target

    def called(self, key: str) -> Call:
        """A call reaches the target."""
        effect_id = self._ids.get(key)
        effect = self._streams.get(effect_id) if effect_id is not None else None
        if effect_id is None or effect is None:
            raise Violation(f"a call was made that was never declared: {key}")
        assert effect.run_id is not None
        target = self._targets.setdefault(effect_id, _Target(effect.run_id))
        target.calls += 1
        target.under_way += 1
        if target.calls > effect.pending:
            raise Violation(f"a call was made that was not announced: {key}")
        if effect.state not in _WRITING:
            raise Violation(f"a call was made while its effect was {effect.state}: {key}")
        late = self._seconds() - effect.pending_at_seconds
        if late > CALL_STARTS_WITHIN_SECONDS:
            raise Violation(f"a call was made {late:.1f} s after it was announced: {key}")
        return Call(effect_id, target.lives, self._restores)

    def over(self, call: Call, *, written: bool) -> None:
        """The target has done what it was asked, or will not do it any more."""
        target = self._targets[call.effect_id]
        if call.life != target.lives:
            target.excused += written
            return
        target.under_way -= 1
        if not written:
            return
        target.writes += 1
        target.lost = call.restores < self._restores
        effect = self._streams.get(call.effect_id)
        # A call from before a restore may come to what the record has not got to yet.
        if not target.lost and (effect is None or effect.state not in _WRITING):
            state = effect.state if effect else "absent"
            raise Violation(f"the target wrote what is recorded as {state}: {call.effect_id}")
        if target.writes > 1:
            raise Violation(f"done twice in the outside world: {call.effect_id}")

    def stands(self, effect_id: UUID) -> bool:
        """Whether the target shows this write to whoever looks, whenever it was made."""
        target = self._targets.get(effect_id)
        return target is not None and target.writes + target.excused > 0

    def may_be_under_way(self, now: datetime) -> bool:
        """Whether the target may be about to be called, or be at work."""
        effects = [stream for stream in self._streams.values() if stream.category == "effect"]
        open_ = any(effect.state in {"declared", "pending"} for effect in effects)
        return self.at_work() or open_ or any(e.over_at is not None and e.over_at > now for e in effects)

    def at_work(self) -> bool:
        """Whether the target is at work on a call."""
        return any(target.under_way for target in self._targets.values())

    def unsure(self) -> bool:
        """Whether a write is announced or in doubt."""
        return any(stream.category == "effect" and stream.state in _WRITING for stream in self._streams.values())

    # Restores and the end

    def restored(self) -> None:
        """The record was set back: no call of before is announced any more, and some runs never began."""
        self._restores += 1
        for effect_id, target in self._targets.items():
            effect = self._streams.get(effect_id)
            target.calls = effect.pending if effect else 0
            target.lost = target.writes > 0
            if target.run_id not in self._streams:
                target.lives += 1
                target.excused += target.writes
                target.writes = target.under_way = 0
                target.lost = False

    def close(self, era: int) -> None:
        """Everything is settled: what is recorded as written stands at the target, once, and nothing else does."""
        linked = {stream.of for stream in self._streams.values() if stream.of is not None}
        for effect_id, effect in self._streams.items():
            if effect.category != "effect":
                continue
            target = self._targets.get(effect_id) or _Target(run_id=effect_id)
            done = effect.state == "succeeded"
            if target.writes != done and not self._is_excused(effect, target, era, done=done):
                raise Violation(f"effect {effect.key} is {effect.state} and was written {target.writes} times")
            if done and effect.tool in LINKED and effect_id not in linked:
                raise Violation(f"a write stands without its back-link: {effect.key}")

    @staticmethod
    def _is_excused(effect: Stream, target: _Target, era: int, *, done: bool) -> bool:
        """What a lost run wrote may be taken for what it was to write; what was lost and never due again is unknown."""
        if done:
            return target.excused > 0
        return target.writes == 1 and target.lost and effect.doubted_in != era

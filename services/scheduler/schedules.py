"""Holds the lines of schedules to what definitions declare, fires them when they are due, pauses and resumes them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, cast
from uuid import UUID

from contracts import ids
from contracts.base import Event
from contracts.commands import PauseSchedule, ResumeSchedule
from contracts.envelope import Address
from contracts.errors import MinutebookError, Rejected
from contracts.events.schedule import ScheduleSkipped
from contracts.replies import ScheduleChanged
from libs.domain import run, schedule
from libs.domain.schedule import Command, Look, Pause, Resume, State
from libs.domain.slots import line_of
from libs.eventstore.port import Load, Store
from libs.ids import mint
from libs.owner import Done, Item, Owner, Publisher
from libs.process import actor
from libs.telemetry.logs import get_logger
from minutebook.models.states import ScheduleState
from services.scheduler.firing import Evidence, Version, versions

PAGE: Final = 500

_ACTOR: Final = actor("scheduler")

_log = get_logger("scheduler.schedules")


class Schedules:
    """The owner of `schedule`."""

    def __init__(self, store: Store, publisher: Publisher) -> None:
        self._store = store
        self._evidence = Evidence(store)
        self._woken = False
        self._owner: Owner[State, Command] = Owner(
            schedule.CATEGORY,
            schedule.decide,
            store=store,
            publisher=publisher,
            categories={run.CATEGORY.name: run.CATEGORY},
            prepare=self._prepare,
            observe=_tell,
        )

    async def on_facts(self, _type: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """Definitions have another version. Failures are by definition."""
        return await self.reconcile({fact.stream_id for fact in facts})

    async def on_wake(self, schedule_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """The clock has come to these lines."""
        items = [_item(schedule_id, Look(schedule_id), causation=mint()) for schedule_id in schedule_ids]
        results = await self._owner.handle(items)
        await self._set_intervals(result for result in results if isinstance(result, Done) and not result.changed)
        return _failures(items, results)

    async def keep(self) -> None:
        """Reconcile everything; the first time also look at every line: zones may have changed since it was set."""
        if not self._woken:
            after: UUID | None = None
            while True:
                page = await self._store.wake_open("schedule", {"active"}, limit=PAGE, after=after)
                after = page.next
                if after is None:
                    break
            self._woken = True
        lines = await self._store.lines()
        declared = {ids.definition(line.tenant_group, line.definition_id) for line in lines}
        for definition_id, failure in (await self.reconcile(declared | set(await self._store.scheduled()))).items():
            _log.warning("schedules not reconciled", definition_stream=str(definition_id), code=failure.code)

    async def reconcile(self, definition_ids: Collection[UUID]) -> Mapping[UUID, MinutebookError]:
        """Declare the lines that the versions of these definitions have, and retire the others."""
        current = await versions(self._store, definition_ids)
        standing: defaultdict[UUID, list[UUID]] = defaultdict(list)
        for line in await self._store.lines([(v.tenant_group, v.synced.definition_id) for v in current.values()]):
            if line.state != "retired":
                standing[ids.definition(line.tenant_group, line.definition_id)].append(line.stream_id)
        items: list[Item[Command]] = []
        origins: list[UUID] = []
        for stream_id, version in current.items():
            for schedule_id, command in _differences(version, standing[stream_id]):
                items.append(_item(schedule_id, command, causation=stream_id, version=version))
                origins.append(stream_id)
        results = await self._owner.handle(items)
        return {
            origin: result
            for origin, result in zip(origins, results, strict=True)
            if isinstance(result, MinutebookError)
        }

    async def pause(self, ask: PauseSchedule) -> ScheduleChanged:
        """Let a line's slots pass.

        Raises:
            contracts.errors.Rejected: ``schedule.not_found`` (404), ``schedule.not_yours`` (403), ``schedule.retired``
                (409).
        """
        return await self._change(ask, Pause(ask.principal))

    async def resume(self, ask: ResumeSchedule) -> ScheduleChanged:
        """Let a line fire again, from its next slot on. Raises what `pause` does."""
        return await self._change(ask, Resume(ask.principal))

    async def _change(self, ask: PauseSchedule | ResumeSchedule, command: Command) -> ScheduleChanged:
        item: Item[Command] = Item(
            stream_id=ask.schedule_id,
            command=command,
            actor=ask.principal.actor,
            causation=ask.command_id,
            tenant_group=ask.principal.tenant_group,
            tenant=ask.principal.tenant,
            traceparent=ask.traceparent,
            deadline=ask.deadline,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            if result.code == "stream.not_found":  # another tenant group's must look as one that is not there
                raise Rejected("schedule.not_found", "there is no such schedule", status=404)
            raise result
        return ScheduleChanged(schedule_id=ask.schedule_id, state=cast(ScheduleState, result.state.status))

    async def _prepare(
        self, batch: Sequence[tuple[Item[Command], State, UUID | None]], _load: Load
    ) -> Sequence[Command | MinutebookError]:
        """Complete looks with what firing needs, read for all lines at once."""
        commands: list[Command | MinutebookError] = [item.command for item, _, _ in batch]
        looking = {
            index: (item.command, group, state)
            for index, (item, state, group) in enumerate(batch)
            if isinstance(item.command, Look) and state.status == "active" and group is not None
        }
        read = await self._evidence.read([(group, state) for _, group, state in looking.values()])
        for (index, (look, *_)), known in zip(looking.items(), read, strict=True):
            commands[index] = known if isinstance(known, MinutebookError) else replace(look, known=known)
        return commands

    async def _set_intervals(self, quiet: Iterable[Done[State]]) -> None:
        """Wake intervals whose run has ended at the very moment at which they are due."""
        waiting = [done for done in quiet if done.state.every is not None and done.state.last_run is not None]
        runs = await self._evidence.last_runs([done.state for done in waiting])
        moves: list[tuple[UUID, int, datetime | None]] = []
        for done in waiting:
            due_at = schedule.due_again(done.state, runs.get(cast(UUID, done.state.last_run)))
            if due_at is not None:
                moves.append((done.stream_id, done.version, due_at))
        if moves:
            await self._store.move_wakes("schedule", moves)


def _differences(version: Version, lines: Collection[UUID]) -> Iterable[tuple[UUID, Command]]:
    """What makes the lines that stand into those that a version has, by schedule id."""
    synced = version.synced
    wanted = {
        ids.schedule(
            version.tenant_group, synced.definition_id, line_of(t.cron, t.every_seconds, t.timezone)
        ): schedule.Declare(synced.definition_id, t.cron, t.every_seconds, t.timezone)
        for t in (synced.schedules if synced.enabled else ())
    }
    # One that stands is left alone: it may be due at this moment, and a command without a word would postpone its wake.
    yield from ((schedule_id, command) for schedule_id, command in wanted.items() if schedule_id not in lines)
    for schedule_id in lines:
        if schedule_id not in wanted:
            yield schedule_id, schedule.Retire(schedule.retirement(synced))


def _item(stream_id: UUID, command: Command, *, causation: UUID, version: Version | None = None) -> Item[Command]:
    return Item(
        stream_id=stream_id,
        command=command,
        actor=_ACTOR,
        causation=causation,
        tenant_group=None if version is None else version.tenant_group,
        tenant=None if version is None else version.tenant,
    )


def _failures(
    items: Sequence[Item[Command]], results: Sequence[Done[State] | MinutebookError]
) -> Mapping[UUID, MinutebookError]:
    return {
        item.stream_id: result
        for item, result in zip(items, results, strict=True)
        if isinstance(result, MinutebookError)
    }


def _tell(before: State, facts: Sequence[Event]) -> None:
    for fact in facts:
        if isinstance(fact, ScheduleSkipped):
            _log.warning(
                "slots skipped",
                definition_id=before.definition_id,
                line=before.line,
                slot=fact.slot,
                count=fact.count,
                reason=fact.reason,
            )

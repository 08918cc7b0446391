"""Load, decide, append, publish: the one loop that every owner of a category runs."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from contracts.base import Actor, Event, Metadata
from contracts.errors import Broken, Conflict, MinutebookError, Rejected, Unavailable
from libs.domain.core import NOTHING, Category, Decided, replace
from libs.eventstore.port import (
    Append,
    Appended,
    BatchResult,
    BirthRow,
    EventStore,
    Load,
    Loaded,
    Snapshot,
)
from libs.eventstore.snapshots import SNAPSHOT_EVERY, Kept, Snapshots, Told, told
from libs.faultpoints import faultpoint
from libs.owner.publisher import Publisher
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger

S = TypeVar("S")
C = TypeVar("C")

ROUNDS_MAX: Final = 8
"""How often a batch's losers are loaded and decided again before they get a `Conflict`."""

STATES_CACHED_MAX: Final = 10_000

TELLING_MAX: Final = 8
"""How many batches may be committed and not acknowledged by the bus yet. The next one waits, as the bus is slow."""

WAKE_AGAIN: Final = timedelta(seconds=30)
"""When a woken stream has nothing to say and would be due at once again."""

_log = get_logger("owner")


@dataclass(frozen=True, slots=True)
class Item(Generic[C]):
    """A command for one stream, and who sends it.

    `tenant_group` and `tenant` are needed where the command may create the stream; where they are given and the
    stream belongs to another group, it does not exist for this command. `claim` gates the append on the head's
    current claim; `set_claim` records a new one; `release` clears it. After `deadline` nothing is written.
    """

    stream_id: UUID
    command: C
    actor: Actor
    causation: UUID
    tenant_group: UUID | None = None
    tenant: UUID | None = None
    traceparent: str | None = None
    claim: UUID | None = None
    set_claim: UUID | None = None
    release: bool = False
    deadline: datetime | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[S]):
    """An item's result: the state that the stream has now. `skipped` are births that existed already."""

    stream_id: UUID
    version: int
    state: S
    changed: bool
    skipped: tuple[UUID, ...] = ()


@dataclass(frozen=True)
class _Held(Generic[S]):
    """A stream as it was last seen. `done` are the commands of callers that wrote facts of it: (who, command).

    `kept` is the version of its newest snapshot, as far as is known here.
    """

    state: S
    version: int = 0
    digest: bytes = b""
    wake_at: datetime | None = None
    tenant_group: UUID | None = None
    tenant: UUID | None = None
    traceparent: str | None = None
    done: frozenset[Told] = frozenset()
    kept: int = 0


Result = Done[S] | MinutebookError
Prepare = Callable[[Sequence[tuple[Item[C], S, UUID | None]], Load], Awaitable[Sequence[C | MinutebookError]]]
"""Completes commands: (item, state, the stream's tenant group) of each → its command, or why it cannot be judged.

The load is the one that brought the states, with what `beside` named.
"""

Beside = Callable[[C, S], Iterable[tuple[str, UUID]]]
"""Names what else a command will probably need, as its stream was last seen: (category, stream)."""


class Owner(Generic[S, C]):
    """The one writer of a category.

    `decide` judges one command; `prepare`, where given, completes the commands of a batch with what their deciders
    need from elsewhere, once their states are known; what `beside` names comes with the states, in the same query.
    `categories` are those that births may go to. `observe` is told what was written: a stream's state before, and its
    new facts. `quiet` are types of the category's own facts that are no news when they are written here. A stream is
    kept as a snapshot when `snapshot_every` facts have come to it since it last was.
    """

    def __init__(
        self,
        category: Category[S],
        decide: Callable[[C, S, datetime], Decided],
        *,
        store: EventStore,
        publisher: Publisher,
        categories: Mapping[str, Category[Any]] | None = None,
        prepare: Prepare[C, S] | None = None,
        beside: Beside[C, S] | None = None,
        observe: Callable[[S, Sequence[Event]], None] | None = None,
        quiet: frozenset[str] = frozenset(),
        snapshot_every: int = SNAPSHOT_EVERY,
    ) -> None:
        self._category = category
        self._decide = decide
        self._store = store
        self._publisher = publisher
        self._categories = categories or {}
        self._prepare = prepare
        self._beside = beside
        self._observe = observe
        self._quiet = quiet
        self._snapshots = Snapshots(category, every=snapshot_every)
        self._cache: OrderedDict[UUID, _Held[S]] = OrderedDict()
        self._telling: set[asyncio.Task[None]] = set()
        self._erasures = store.erasures

    async def handle(self, items: Sequence[Item[C]], *, loaded: Load | None = None) -> list[Result[S]]:
        """Carry out a batch; one result per item, in order. An item's failure is its own.

        Several items of one stream are carried out one after the other. `loaded` holds all of their streams from the
        beginning, where the caller has just read them or takes them for new; one that is otherwise loses its gate and
        is read then.
        """
        results: dict[int, Result[S]] = {}
        waiting = dict(enumerate(items))
        while waiting:
            turn: dict[UUID, int] = {}
            for index, item in waiting.items():
                turn.setdefault(item.stream_id, index)
            chosen = {index: waiting.pop(index) for index in turn.values()}
            results.update(await self._handle_distinct(chosen, loaded))
            loaded = None
        return [results[index] for index in range(len(items))]

    async def _handle_distinct(self, items: Mapping[int, Item[C]], loaded: Load | None = None) -> dict[int, Result[S]]:
        results: dict[int, Result[S]] = {}
        open_ = dict(items)
        for _ in range(ROUNDS_MAX):
            try:
                results.update(await self._round(open_, loaded))
            except Broken as error:
                results.update(await self._one_by_one(open_, error))
            except Unavailable as error:
                self._forget(item.stream_id for item in open_.values())
                results.update(dict.fromkeys(open_, error))
            loaded = None
            open_ = {index: item for index, item in open_.items() if index not in results}
            if not open_:
                return results
        lost = Conflict("append.contended", f"the stream was changed by others {ROUNDS_MAX} times; send it again")
        return results | dict.fromkeys(open_, lost)

    async def _one_by_one(self, items: Mapping[int, Item[C]], error: Broken) -> dict[int, Result[S]]:
        """The statement was refused: find the item that it cannot take, and spare the others."""
        if len(items) == 1:
            return dict.fromkeys(items, error)
        results: dict[int, Result[S]] = {}
        for index, item in items.items():
            results.update(await self._handle_distinct({index: item}))
        return results

    async def _round(self, items: Mapping[int, Item[C]], loaded: Load | None) -> dict[int, Result[S]]:
        """Load, decide and append once. Items that lost their gate are left out of the result."""
        results: dict[int, Result[S]] = {}
        load, held = await self._load(list(items.values()), loaded)
        now = load.now
        decided = await self._decide_all(items, held, load, results)
        appends: dict[int, Append] = {}
        states: dict[int, S] = {}
        moves: list[tuple[UUID, int, datetime | None]] = []
        for index, decision in decided.items():
            item, before = items[index], held[items[index].stream_id]
            if not decision.events:
                results[index] = Done(item.stream_id, before.version, before.state, changed=False)
                # A caller's command that has nothing to say has not looked at what the wake is for: it stays due.
                if before.wake_at is not None and before.wake_at <= now and item.actor.id is None:
                    moves.append((item.stream_id, before.version, self._later(before.state, now)))
                continue
            folded: S | None = decision.state
            states[index] = self._category.fold(decision.events, before.state) if folded is None else folded
            appends[index] = self._append(item, before, decision, states[index], now)
        if moves:
            await self._store.move_wakes(self._category.name, moves)
        if appends:
            batch = await self._write(list(appends.values()))
            for (index, append), fate in zip(appends.items(), batch.appended, strict=True):
                self._settle(index, append, fate, states[index], results)
                if self._observe is not None and fate.fate == "won":
                    self._observe(held[append.stream_id].state, append.events)
            await self._tell(batch, _work(appends.values(), batch))
            await self._keep([fate.stream_id for fate in batch.appended if fate.fate == "won"])
        return results

    async def _write(self, appends: Sequence[Append]) -> BatchResult:
        category = self._category.name
        metrics.APPEND_STREAMS.labels(category).observe(len(appends))
        faultpoint("append.before")
        with metrics.timed(metrics.APPEND_SECONDS.labels(category)):
            batch = await self._store.append(category, appends)
        faultpoint("append.committed")
        fates = Counter(appended.fate for appended in batch.appended)
        metrics.APPEND_LOST.labels(category).inc(fates["lost"])
        metrics.APPEND_GUARDED.labels(category).inc(fates["guarded"])
        return batch

    async def _tell(self, batch: BatchResult, work: Sequence[str]) -> None:
        """Have it published, and go on while the bus acknowledges: what is committed is found by the sweep anyway.

        Begins at once, so that what was decided here leaves before any answer to it.
        """
        while len(self._telling) >= TELLING_MAX:
            await asyncio.wait(self._telling, return_when=asyncio.FIRST_COMPLETED)
        task = asyncio.create_task(
            self._publisher.publish(batch, work, quiet=self._quiet), name=f"publishing of {self._category.name}"
        )
        self._telling.add(task)
        task.add_done_callback(self._told)
        await asyncio.sleep(0)

    def _told(self, task: "asyncio.Task[None]") -> None:
        self._telling.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.error("facts were not published, the sweep will try", category=self._category.name, exc_info=error)

    async def _keep(self, stream_ids: Iterable[UUID]) -> None:
        """Keep those that have grown enough. Nobody needs it: when it fails, the next fact tries again."""
        long = {
            i: held
            for i in stream_ids
            if (held := self._cache.get(i)) is not None and held.version - held.kept >= self._snapshots.every
        }
        snapshots = [
            Snapshot(i, held.version, held.tenant_group, held.digest, self._snapshots.write(_kept(held)))
            for i, held in long.items()
            if held.tenant_group is not None
        ]
        if not snapshots:
            return
        try:
            await self._store.keep_snapshots(self._snapshots.schema, snapshots)
        except MinutebookError as error:
            _log.warning("snapshots were not kept", category=self._category.name, code=error.code)
            return
        for i, held in long.items():
            if self._cache.get(i) is held:
                self._cache[i] = replace(held, kept=held.version)

    async def _decide_all(
        self,
        items: Mapping[int, Item[C]],
        held: Mapping[UUID, _Held[S]],
        load: Load,
        results: dict[int, Result[S]],
    ) -> dict[int, Decided]:
        commands: Sequence[C | MinutebookError] = [item.command for item in items.values()]
        if self._prepare is not None:
            seen = [(item, held[item.stream_id].state, held[item.stream_id].tenant_group) for item in items.values()]
            commands = await self._prepare(seen, load)
        decided: dict[int, Decided] = {}
        for (index, item), command in zip(items.items(), commands, strict=True):
            state, group = held[item.stream_id].state, held[item.stream_id].tenant_group
            try:
                if group is not None and item.tenant_group is not None and group != item.tenant_group:
                    raise Rejected("stream.not_found", f"there is no such {self._category.name}", status=404)
                if not held[item.stream_id].done.isdisjoint(told(item.actor, item.causation)):
                    # Sent again since its reply was lost. What happened since must not turn it into a conflict.
                    decided[index] = NOTHING
                    continue
                if isinstance(command, MinutebookError):
                    raise command
                decided[index] = self._decide(command, state, load.now)
            except MinutebookError as error:
                results[index] = error
            except Exception as error:
                _log.exception("decider failed", category=self._category.name, stream_id=str(item.stream_id))
                results[index] = Broken("decider.failed", f"{type(error).__name__} while deciding; see the log")
        await self._postpone([items[i].stream_id for i in results if i in items], held, load.now)
        return decided

    async def _postpone(self, stream_ids: Sequence[UUID], held: Mapping[UUID, _Held[S]], now: datetime) -> None:
        """A due stream whose command failed must not stand at the head of the scan for ever."""
        due = [(i, held[i]) for i in stream_ids if (at := held[i].wake_at) is not None and at <= now]
        if due:
            await self._store.move_wakes(self._category.name, [(i, h.version, now + WAKE_AGAIN) for i, h in due])

    async def _load(self, items: Sequence[Item[C]], given: Load | None = None) -> tuple[Load, dict[UUID, _Held[S]]]:
        """Top the cached states up by one query. A state that the history denies is read again from its beginning."""
        stream_ids = [item.stream_id for item in items]
        begun: Mapping[UUID, Kept[S]] = {}
        if given is not None:
            known = {i: _Held(self._category.initial) for i in stream_ids}
            load = given
        else:
            known = {i: self._cache.get(i) or _Held(self._category.initial) for i in stream_ids}
            load, begun = await self._query(items, known)
            if self._store.erasures != self._erasures:  # states may name who is erased
                self._erasures = self._store.erasures
                self._cache.clear()
                return await self._load(items)
        denied = [i for i, held in known.items() if _denies(load.streams[i], held)]
        if denied:
            _log.warning("history is not the one that was cached", category=self._category.name, streams=len(denied))
            self._forget(denied)
            return await self._load(items)
        for stream_id in known:
            loaded, before = load.streams[stream_id], known[stream_id]
            kept = (begun.get(stream_id) or _kept(before)).above(self._category, loaded.events)
            known[stream_id] = _Held(
                state=kept.state,
                version=loaded.version,
                digest=loaded.digest,
                wake_at=loaded.wake_at,
                tenant_group=loaded.tenant_group,
                tenant=loaded.tenant,
                traceparent=kept.traceparent,
                done=kept.done,
                kept=before.kept if loaded.snapshot is None else loaded.snapshot.version,
            )
            self._remember(stream_id, known[stream_id])
        return load, known

    async def _query(
        self, items: Sequence[Item[C]], known: Mapping[UUID, _Held[S]]
    ) -> tuple[Load, Mapping[UUID, Kept[S]]]:
        after = {stream_id: held.version for stream_id, held in known.items()}
        if self._beside is None:
            return await self._snapshots.load(self._store, after)
        beside = {each for item in items for each in self._beside(item.command, known[item.stream_id].state)}
        return await self._snapshots.load(self._store, after, beside=sorted(beside))

    def _append(self, item: Item[C], before: _Held[S], decision: Decided, state: S, now: datetime) -> Append:
        tenant_group = before.tenant_group or item.tenant_group
        tenant = before.tenant or item.tenant
        if tenant_group is None or tenant is None:
            raise Broken("append.no_tenant", f"a new {self._category.name} stream needs a tenant group and a tenant")
        metadata = Metadata(
            tenant_group=tenant_group,
            tenant=tenant,
            actor=item.actor,
            correlation=self._category.run_id(state) or item.stream_id,
            causation=item.causation,
            traceparent=_one_trace(before.traceparent, item.traceparent),
        )
        return Append(
            stream_id=item.stream_id,
            version=before.version,
            digest=before.digest,
            events=decision.events,
            metadata=metadata,
            state=self._category.status(state),
            columns=self._category.columns(state),
            wake_at=self._wake_at(before, state, now),
            claim=item.claim,
            set_claim=item.set_claim,
            release=item.release,
            guards=decision.guards,
            deadline=min((at for at in (item.deadline, decision.deadline) if at is not None), default=None),
            births=tuple(self._birth(birth, now) for birth in decision.births),
            blobs=decision.blobs,
            ready=decision.ready,
        )

    def _birth(self, birth: Any, now: datetime) -> BirthRow:
        category = self._categories[birth.category]
        state = category.fold((birth.event,))
        return BirthRow(
            category=birth.category,
            stream_id=birth.stream_id,
            event=birth.event,
            state=category.status(state),
            columns=category.columns(state),
            wake_at=category.wake_at(state, now),
            work_subject=birth.work_subject,
            correlation=category.run_id(state) or birth.stream_id,
        )

    def _settle(self, index: int, append: Append, fate: Appended, state: S, results: dict[int, Result[S]]) -> None:
        match fate.fate:
            case "won":
                held = self._cache.get(append.stream_id) or _Held(self._category.initial)
                self._remember(
                    append.stream_id,
                    replace(
                        held,
                        state=state,
                        version=fate.version,
                        digest=fate.digest,
                        wake_at=append.wake_at,
                        tenant_group=append.metadata.tenant_group,
                        tenant=append.metadata.tenant,
                        traceparent=held.traceparent or append.metadata.traceparent,
                        done=held.done | told(append.metadata.actor, append.metadata.causation),
                    ),
                )
                results[index] = Done(append.stream_id, fate.version, state, changed=True, skipped=fate.skipped)
            case "guarded":
                results[index] = Rejected(
                    "append.guarded", "the run that this belongs to does not allow it any more", status=409
                )
            case "late":
                results[index] = Unavailable(
                    "ask.late", "the deadline of the command has passed; nothing was done", again=True
                )
            case "lost":
                if append.claim is not None and fate.version == append.version:
                    results[index] = Rejected("claim.lost", "this claim is not the current one", status=409)

    def _remember(self, stream_id: UUID, held: _Held[S]) -> None:
        self._cache[stream_id] = held
        self._cache.move_to_end(stream_id)
        while len(self._cache) > STATES_CACHED_MAX:
            self._cache.popitem(last=False)

    def _forget(self, stream_ids: Iterable[UUID]) -> None:
        """Nothing is known of these streams any more: what was sent may have been written or not."""
        for stream_id in stream_ids:
            self._cache.pop(stream_id, None)

    def _wake_at(self, before: _Held[S], state: S, now: datetime) -> datetime | None:
        """Lazy: a wake moves only when it must be earlier or has passed. It may be early, never late."""
        if self._category.status(state) in self._category.terminal:
            return None
        wanted = self._category.wake_at(state, now)
        current = before.wake_at
        if current is not None and current > now and (wanted is None or current <= wanted):
            return current
        return wanted

    def _later(self, state: S, now: datetime) -> datetime | None:
        """The next wake of a stream that was due and had nothing to say."""
        if self._category.status(state) in self._category.terminal:
            return None
        wanted = self._category.wake_at(state, now)
        return wanted if wanted is None or wanted > now else now + WAKE_AGAIN


def _kept(held: _Held[S]) -> Kept[S]:
    return Kept(held.state, held.traceparent, held.done)


def _denies(loaded: Loaded, held: _Held[Any]) -> bool:
    """Whether a stream cannot have been as it is held: a database that took another's place may have lost its end."""
    if loaded.version == held.version:
        return loaded.digest != held.digest
    return loaded.version < held.version


def _one_trace(origin: str | None, current: str | None) -> str | None:
    """A stream keeps the trace that it began with: a run is one trace over days, whoever moves it on."""
    if origin is None:
        return current
    if current is not None and current.split("-")[1:2] == origin.split("-")[1:2]:
        return current
    return origin


def _work(appends: Any, batch: BatchResult) -> list[str]:
    """The work subjects that this batch queued, births that were skipped left out."""
    skipped = {stream_id for fate in batch.appended for stream_id in fate.skipped}
    won = {fate.stream_id for fate in batch.appended if fate.fate == "won"}
    return [
        subject
        for append in appends
        if append.stream_id in won
        for subject in (
            *(b.work_subject for b in append.births if b.work_subject and b.stream_id not in skipped),
            *append.ready.values(),
        )
    ]

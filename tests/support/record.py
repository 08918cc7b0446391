"""A record for tests of one service: a real PostgreSQL, and a bus that keeps what was published.

The handlers that a service subscribes are called as the bus would call them, so a test decides what is delivered, how
often and in which order. What the real bus does is proved where the bus is tested.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid4

import asyncpg

from contracts.base import Actor, BlobRef, Event, JsonValue, Metadata
from contracts.envelope import Address, Envelope, InboundNotice, Wake
from contracts.envelope import Owner as ServiceName
from contracts.subjects import DurableSpec
from libs.bus.port import AskHandler, BatchHandler, Bus, Delivered, Disposition
from libs.canonical import blob
from libs.config import Secrets, Settings
from libs.domain.core import Category
from libs.eventstore.port import Append
from libs.eventstore.postgres import PostgresStore
from libs.postgres import open_pool
from libs.process import Tools
from tests.support.buses import QuietBus
from tests.support.postgres import Database

S = TypeVar("S")


@dataclass
class ListeningBus(QuietBus):
    """A bus with a test in the place of the server."""

    _handlers: dict[str, BatchHandler] = field(default_factory=dict)
    _answers: dict[str, AskHandler] = field(default_factory=dict)

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        self._handlers[durable.name] = handler

    def answer(self, subject: str, handler: AskHandler) -> None:
        self._answers[subject] = handler

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        return await self._answers[subject](subject, data, headers)

    async def deliver(self, durable: str, subject: str, *data: bytes) -> Sequence[Disposition]:
        """Hand a batch to a durable's handler."""
        return await self._handlers[durable]([Delivered(subject, item, {}, 1) for item in data])

    async def tell(self, durable: str, type_: str, *stream_ids: UUID, version: int = 1) -> Sequence[Disposition]:
        """Deliver facts, one envelope each; each stream is its own correlation."""
        envelopes = [Envelope(era=1, facts=(Address(stream_id=i, version=version, correlation=i),)) for i in stream_ids]
        return await self.deliver(
            durable, f"history.{type_}", *(envelope.model_dump_json().encode() for envelope in envelopes)
        )

    async def wake(self, service: ServiceName, category: str, *stream_ids: UUID) -> Sequence[Disposition]:
        wake = Wake(category=category, stream_ids=stream_ids)
        return await self.deliver(f"{service}-wake", f"wake.{service}", wake.model_dump_json().encode())

    async def notify(self, source: str, *delivery_ids: UUID) -> Sequence[Disposition]:
        notices = [InboundNotice(delivery_ids=(i,)).model_dump_json().encode() for i in delivery_ids]
        return await self.deliver("ingest-inbound", f"inbound.{source}", *notices)


@dataclass
class Record:
    """A database with one tenant group, and what a test plants in it and reads from it."""

    database: Database
    pool: asyncpg.Pool
    store: PostgresStore
    group: UUID = field(default_factory=uuid4)
    tenant: UUID = field(default_factory=uuid4)

    async def tools(self, bus: Bus, *, secrets: Mapping[str, str] | Secrets | None = None, **settings: Any) -> Tools:
        """Tools of one more service on this record, with connections of its own that it closes."""
        pool = await open_pool(self.database.app_dsn, application_name="test service")
        return Tools(
            settings=Settings(postgres_dsn=self.database.app_dsn, nats_url="nats://nowhere", **settings),
            secrets=secrets if isinstance(secrets, Secrets) else Secrets(overrides=secrets),
            pool=pool,
            store=PostgresStore(pool),
            bus=bus,
        )

    async def plant(self, category: Category[S], stream_id: UUID, *events: Event, group: UUID | None = None) -> S:
        """Append facts as their owner would, and return the state."""
        (state,) = await self.plant_all(category, {stream_id: events}, group=group)
        return state

    async def plant_all(
        self, category: Category[S], streams: Mapping[UUID, Sequence[Event]], *, group: UUID | None = None
    ) -> list[S]:
        load = await self.store.load(category.name, dict.fromkeys(streams, 0))
        appends, states = [], []
        for stream_id, events in streams.items():
            before = load.streams[stream_id]
            state = category.fold((*(recorded.event for recorded in before.events), *events))
            metadata = Metadata(
                tenant_group=group or self.group,
                tenant=self.tenant,
                actor=Actor(kind="system", name="test"),
                correlation=category.run_id(state) or stream_id,
                causation=stream_id,
            )
            states.append(state)
            appends.append(
                Append(
                    stream_id=stream_id,
                    version=before.version,
                    digest=before.digest,
                    events=tuple(events),
                    metadata=metadata,
                    state=category.status(state),
                    columns=category.columns(state),
                    wake_at=category.wake_at(state, load.now),
                )
            )
        result = await self.store.append(category.name, appends)
        assert [fate.fate for fate in result.appended] == ["won"] * len(appends)
        return states

    async def keep(self, value: JsonValue, *, group: UUID | None = None) -> BlobRef:
        """Store content for facts that will follow."""
        ref, content = blob(value)
        await self.store.put_blobs(group or self.group, {ref.digest: content})
        return ref

    async def state(self, category: Category[S], stream_id: UUID) -> S:
        load = await self.store.load(category.name, {stream_id: 0})
        return category.fold(tuple(recorded.event for recorded in load.streams[stream_id].events))

    async def types(self, category: str, stream_id: UUID) -> list[str]:
        load = await self.store.load(category, {stream_id: 0})
        return [recorded.type for recorded in load.streams[stream_id].events]

    async def shift(self, by: timedelta) -> None:
        """Let the database's clock, the only one, go on by so much."""
        connection = await asyncpg.connect(self.database.owner_dsn)
        try:
            await connection.execute("update clock_shift set shift = shift + $1::interval", by)
        finally:
            await connection.close()


@asynccontextmanager
async def open_record(database: Database) -> AsyncIterator[Record]:
    """A record on an empty database."""
    pool = await open_pool(database.app_dsn, application_name="test", connections_max=16)
    try:
        yield Record(database, pool, PostgresStore(pool))
    finally:
        await pool.close()


async def eventually(check: Callable[[], Awaitable[bool]], *, within: timedelta = timedelta(seconds=15)) -> None:
    """Repeat an assertion, never an action, until it holds."""
    async with asyncio.timeout(within.total_seconds()):
        while True:
            if await check():
                return
            await asyncio.sleep(0.01)

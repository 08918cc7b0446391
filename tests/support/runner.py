"""A runner on real PostgreSQL for tests, with runs to work on. The bus is deaf here: runners look."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from contracts.base import Actor, BlobRef, Event, Metadata
from contracts.events.attempt import (
    AttemptQueued,
)
from contracts.events.run import (
    RunCreated,
    RunStarted,
    RunStepQueued,
    Trigger,
    UserRef,
)
from contracts.requests import AttemptRequest
from libs.canonical import blob
from libs.config import Settings
from libs.domain import attempt, run
from libs.eventstore.port import Append, BirthRow
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.owner import Owner, Publisher
from libs.postgres import execute
from services.runner.duties import Keeper, RunsEnded, Wakes
from services.runner.executors import EchoExecutor, Executor, Failure, Produced, Scope
from services.runner.worker import Worker
from tests.support.buses import QuietBus

AT = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
GROUP, TENANT = mint(), mint()
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class GatedExecutor:
    """Counts executions of each attempt, and ends each only once `gate` is open."""

    outcome: Produced | Failure = field(default_factory=lambda: Produced({"done": True}))
    name: str = "echo"
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    executions: Counter[UUID] = field(default_factory=Counter)
    cancelled: list[UUID] = field(default_factory=list)

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        self.executions[scope.attempt_id] += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(scope.attempt_id)
            raise
        return self.outcome

    async def close(self) -> None:
        return


class Runner:
    """A runner as its wiring builds it, that can also die: no drain, nothing given back."""

    def __init__(self, name: str, pool: asyncpg.Pool, executor: Executor, settings: Settings) -> None:
        self.store = PostgresStore(pool)
        self.bus = QuietBus()
        owner: Owner[attempt.State, attempt.Command] = Owner(
            attempt.CATEGORY, attempt.decide, store=self.store, publisher=Publisher(self.bus, self.store)
        )
        self.worker = Worker(
            runner=name,
            store=self.store,
            bus=self.bus,
            owner=owner,
            executors={executor.name: executor},
            settings=settings,
        )
        self.ended = RunsEnded(owner, self.store, self.worker.hand)
        self.wakes = Wakes(owner, self.store, self.ended, settings)
        self.keeper = Keeper(self.worker.hand, self.store, self.ended, settings)
        self._duties: list[asyncio.Task[None]] = []

    def start(self, *, keeping: bool = True) -> "Runner":
        duties = [self.worker.claiming, *([self.keeper.keeping] if keeping else [])]
        self._duties = [asyncio.create_task(duty()) for duty in duties]
        return self

    async def freeze(self) -> None:
        """Claim and renew no more; what runs goes on."""
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)

    async def die(self) -> None:
        await self.freeze()
        await self.worker.hand.let_go(why="killed by the test")

    async def stop(self) -> None:
        await self.worker.drain()
        await self.freeze()
        await self.store.close()


@dataclass
class Shop:
    """A database with runners, runs and a clock that the test shifts."""

    pool: asyncpg.Pool
    owner_pool: asyncpg.Pool
    store: PostgresStore
    runners: list[Runner] = field(default_factory=list)

    def runner(self, executor: Executor | None = None, **settings: Any) -> Runner:
        values = {"runner_idle_seconds": 0.02, "runner_renew_seconds": 0.05, "drain_seconds": 5.0, **settings}
        made = Runner(
            f"runner-{len(self.runners)}",
            self.pool,
            executor or EchoExecutor(),
            Settings(postgres_dsn="unused", nats_url="unused", **values),
        )
        self.runners.append(made)
        return made

    async def advance(self, by: timedelta) -> None:
        await execute(self.owner_pool, "update clock_shift set shift = shift + $1::interval", by)

    async def run(
        self, attempts: int = 1, *, request: BlobRef | None = None, queue: str = "default", **fields: Any
    ) -> tuple[UUID, list[UUID]]:
        """A running run with attempts that are ready."""
        run_id, attempt_ids = mint(), [mint() for _ in range(attempts)]
        events: list[Event] = [
            RunCreated(
                at=AT,
                definition_id="trial",
                hash="1" * 64,
                bundle=BlobRef(digest="2" * 64, bytes=2),
                context={},
                initiated_by=UserRef(id=mint(), email="dev@example.com"),
                trigger=Trigger(kind="manual"),
            ),
            RunStarted(at=AT),
        ]
        births, blobs = [], {}
        for number, attempt_id in enumerate(attempt_ids, 1):
            ref, content = _request(run_id, number, fields)
            blobs[ref.digest] = content
            queued = AttemptQueued(
                at=AT,
                run_id=run_id,
                step="draft",
                round=1,
                number=number,
                executor="echo",
                queue=queue,
                request=request or ref,
            )
            state = attempt.evolve(attempt.CATEGORY.initial, queued)
            columns = attempt.CATEGORY.columns(state)
            births.append(BirthRow("attempt", attempt_id, queued, "queued", columns, None, f"work.echo.{queue}"))
            events.append(RunStepQueued(at=AT, step="draft", round=1, attempt=number, attempt_id=attempt_id))
        await self.append_run(run_id, *events, births=tuple(births), blobs=blobs)
        return run_id, attempt_ids

    async def append_run(
        self,
        run_id: UUID,
        *events: Event,
        births: tuple[BirthRow, ...] = (),
        blobs: Mapping[str, bytes] | None = None,
    ) -> int:
        """Append to a run as its owner would; its new version."""
        before = (await self.store.load("run", {run_id: 0})).streams[run_id]
        state = run.CATEGORY.fold(tuple(r.event for r in before.events) + events)
        append = Append(
            stream_id=run_id,
            version=before.version,
            digest=before.digest,
            events=events,
            metadata=Metadata(
                tenant_group=GROUP,
                tenant=TENANT,
                actor=Actor(kind="system", name="tests"),
                correlation=run_id,
                causation=run_id,
                traceparent=TRACE,
            ),
            state=run.CATEGORY.status(state),
            columns=run.CATEGORY.columns(state),
            wake_at=None,
            births=births,
            blobs=blobs or {},
        )
        (fate,) = (await self.store.append("run", [append])).appended
        assert fate.fate == "won"
        return fate.version

    async def events(self, attempt_id: UUID) -> list[Event]:
        loaded = (await self.store.load("attempt", {attempt_id: 0})).streams[attempt_id]
        return [fact.event for fact in loaded.events]

    async def types(self, attempt_id: UUID) -> list[str]:
        return [type(event).__name__.removeprefix("Attempt") for event in await self.events(attempt_id)]

    async def wait(self, attempt_id: UUID, *types: str) -> list[Event]:
        """The attempt's events, once they are these."""

        async def as_expected() -> None:
            assert await self.types(attempt_id) == list(types)

        await eventually(as_expected)
        return await self.events(attempt_id)


def _request(run_id: UUID, number: int, fields: Mapping[str, Any]) -> tuple[BlobRef, bytes]:
    asked = AttemptRequest(
        run_id=run_id,
        definition_id="trial",
        step="draft",
        round=1,
        attempt=number,
        prompt="Do it.",
        context={"number": number},
        output_schema=None,
        model=None,
        budget_microdollars=None,
        deadline_seconds=60.0,
    )
    return blob(asked.model_copy(update=dict(fields)).model_dump(mode="json"))


async def eventually(check: Callable[[], Awaitable[None]], within: float = 10.0) -> None:
    """Retry an assertion until it holds."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        try:
            return await check()
        except AssertionError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.01)


@asynccontextmanager
async def open_shop(pool: asyncpg.Pool, owner_pool: asyncpg.Pool) -> AsyncIterator[Shop]:
    """A shop whose runners die with the test."""
    made = Shop(pool, owner_pool, PostgresStore(pool))
    try:
        yield made
    finally:
        for runner in made.runners:
            await runner.die()

"""Each counter moves by what happened and by nothing else: races, guards, leases, waits and redeliveries."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID, uuid4

import pytest

from contracts.base import Actor
from contracts.errors import MinutebookError, Rejected
from contracts.events.identity import TenantCreated
from contracts.events.run import RunStageEntered
from libs.bus.microbatch import MicroBatcher
from libs.bus.port import ACK, Delivered, Disposition
from libs.config import Settings
from libs.domain import attempt, identity, run
from libs.domain.core import Decided, Guard, facts
from libs.eventstore.port import Claimed, EventStore, Load
from libs.ids import mint
from libs.owner import Item, Owner, Publisher
from services.runner.duties import RunsEnded, Wakes
from services.runner.hand import Hand
from tests.conformance.test_store_samples import AT, append, birth, created, queued, started
from tests.support.metrics import value
from tests.support.postgres import Database, World
from tests.support.record import ListeningBus, Record, open_record

LEASE = timedelta(seconds=90)
ACTOR = Actor(kind="system", name="test")


@pytest.fixture
async def record(database: Database) -> AsyncIterator[Record]:
    async with open_record(database) as record:
        yield record


class Stages:
    """The owner of `run`, whose every command enters a stage; `rival` is what somebody else does meanwhile."""

    def __init__(self, record: Record, *, guards: tuple[Guard, ...] = (), rivals: int = 0) -> None:
        self._record = record
        self._guards = guards
        self._rivals = rivals
        self._owner: Owner[run.State, str] = Owner(
            run.CATEGORY,
            self._decide,
            store=record.store,
            publisher=Publisher(ListeningBus(), record.store),
            prepare=self._prepare,
        )

    def _decide(self, stage: str, _state: run.State, now: datetime) -> Decided:
        return facts(RunStageEntered(at=now, stage=stage), guards=self._guards)

    async def _prepare(
        self, batch: Sequence[tuple[Item[str], run.State, UUID | None]], load: Load
    ) -> Sequence[str | MinutebookError]:
        """Between the load and the append: where a rival wins."""
        if self._rivals:
            self._rivals -= 1
            await self._record.plant(run.CATEGORY, batch[0][0].stream_id, RunStageEntered(at=load.now, stage="theirs"))
        return [item.command for item, _, _ in batch]

    async def enter(self, *run_ids: UUID) -> list[object]:
        items = [Item(stream_id=run_id, command="ours", actor=ACTOR, causation=mint()) for run_id in run_ids]
        return list(await self._owner.handle(items))


def appended() -> dict[str, float]:
    names = {
        "streams": "minutebook_append_streams_sum",
        "statements": "minutebook_append_seconds_count",
        "lost": "minutebook_append_lost_total",
        "guarded": "minutebook_append_guarded_total",
    }
    return {short: value(name, category="run") for short, name in names.items()}


def moved(before: dict[str, float]) -> dict[str, float]:
    return {name: now - before[name] for name, now in appended().items()}


async def test_a_lost_gate_is_counted_and_the_second_try_is_a_statement_of_its_own(record: Record) -> None:
    first, second = uuid4(), uuid4()
    await record.plant_all(run.CATEGORY, {run_id: (created(), started()) for run_id in (first, second)})
    before = appended()
    await Stages(record, rivals=1).enter(first, second)
    assert moved(before) == {"streams": 3, "statements": 2, "lost": 1, "guarded": 0}


async def test_a_guard_that_refuses_is_counted(record: Record) -> None:
    run_id, other = uuid4(), uuid4()
    await record.plant(run.CATEGORY, run_id, created(), started())
    await record.plant(identity.CATEGORY, other, TenantCreated(at=AT, name="main"))
    before = appended()
    guard = Guard("identity", other, frozenset({"inactive"}))
    (result,) = await Stages(record, guards=(guard,)).enter(run_id)
    assert isinstance(result, Rejected)
    assert result.code == "append.guarded"
    assert moved(before) == {"streams": 1, "statements": 1, "lost": 0, "guarded": 1}


async def test_a_claim_tells_since_when_its_attempt_was_ready(world: World) -> None:
    before = await world.store.now()
    await _queue(world.store, attempt_id := mint())
    await world.advance(timedelta(seconds=7))
    (claimed,) = await world.store.claim(None, limit=1, lease=LEASE)
    assert claimed.attempt_id == attempt_id
    waited = claimed.lease_until - LEASE - claimed.queued_at
    assert timedelta(seconds=7) <= waited <= timedelta(seconds=7) + (await world.store.now() - before)


async def test_a_lease_that_ended_is_counted_once_it_is_recorded(record: Record) -> None:
    await _queue(record.store, mint())
    (claimed,) = await record.store.claim(None, limit=1, lease=LEASE)
    owner: Owner[attempt.State, attempt.Command] = Owner(
        attempt.CATEGORY, attempt.decide, store=record.store, publisher=Publisher(ListeningBus(), record.store)
    )
    await owner.handle([_start(claimed)])
    settings = Settings(postgres_dsn=record.database.app_dsn, nats_url="nats://nowhere")
    hand = Hand(slots=1, on_free=lambda: None)
    wakes = Wakes(owner, record.store, RunsEnded(owner, record.store, hand), settings)

    before = value("minutebook_leases_expired_total")
    await wakes.on_wake("attempt", [claimed.attempt_id])
    assert value("minutebook_leases_expired_total") == before
    await record.shift(LEASE)
    await wakes.on_wake("attempt", [claimed.attempt_id])
    await wakes.on_wake("attempt", [claimed.attempt_id])
    assert value("minutebook_leases_expired_total") == before + 1


async def test_batches_and_redeliveries_are_counted_by_durable() -> None:
    async def handle(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        return [ACK] * len(batch)

    durable = f"durable-{mint()}"
    batcher = MicroBatcher(handle, name=durable, batch_max=3)
    dispositions = [
        batcher.submit(Delivered("history.run.created", b"", {}, deliveries)) for deliveries in (1, 1, 2, 1, 5)
    ]
    assert [await disposition for disposition in dispositions] == [ACK] * 5
    assert value("minutebook_bus_redelivered_total", durable=durable) == 2
    assert value("minutebook_bus_batch_messages_count", durable=durable) == 2
    assert value("minutebook_bus_batch_messages_sum", durable=durable) == 5
    assert value("minutebook_bus_batch_messages_bucket", durable=durable, le="2.0") == 1


async def _queue(store: EventStore, attempt_id: UUID) -> None:
    """A running run with this attempt in `ready`."""
    run_id = mint()
    work = birth("attempt", attempt_id, queued(run_id, number=1), work_subject="work.echo.default")
    await store.append("run", [append("run", run_id, created(), started(), births=(work,))])


def _start(claimed: Claimed) -> Item[attempt.Command]:
    return Item(
        stream_id=claimed.attempt_id,
        command=attempt.Start(claim=claimed.claim, runner="one"),
        actor=ACTOR,
        causation=claimed.claim,
        claim=claimed.claim,
    )

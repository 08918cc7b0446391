"""A record with ingest at work, runs that wait for events, and the events that come for them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from contracts import ids
from contracts.base import Event, JsonObject
from contracts.events.definition import SourceSynced
from contracts.events.run import RunCreated, RunEventAwaited, RunStarted, Trigger, UserRef
from contracts.events.wait import WaitOpened
from libs.bus.port import ACK
from libs.canonical import blob
from libs.domain import definition, inbound, run, wait
from libs.eventstore.port import Delivery
from services.ingest.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, open_record

PAYLOAD, PAYLOAD_BYTES = blob({"issue": {"key": "CORE-7"}})
SOURCE: Final = "jira"
WINDOW: Final = timedelta(minutes=5)
_OWNER: Final = UserRef(id=uuid4(), email="sam@example.com")


@dataclass
class Waiting:
    """A record with one source, and two replicas of ingest."""

    record: Record
    buses: tuple[ListeningBus, ListeningBus]
    _replica: int = field(default=0)

    @property
    def bus(self) -> ListeningBus:
        """The replicas in turn."""
        self._replica = 1 - self._replica
        return self.buses[self._replica]

    async def waiting(self, *, step: str = "answer", run_id: UUID | None = None, **match: str) -> UUID:
        """A run that waits for a comment on a ticket; nobody has been told."""
        ((wait_id, _),) = await self.waits([{"jira_key": "CORE-7", **match}], step=step, run_id=run_id)
        return wait_id

    async def waits(
        self, matches: Sequence[JsonObject], *, step: str = "answer", run_id: UUID | None = None
    ) -> list[tuple[UUID, UUID]]:
        """Runs that wait, each for its own event: (wait, run)."""
        now = await self.record.store.now()
        runs: dict[UUID, Sequence[Event]] = {}
        waits: dict[UUID, Sequence[Event]] = {}
        made: list[tuple[UUID, UUID]] = []
        for match in matches:
            its, wanted = run_id or uuid4(), {"event": "comment_created", **match}
            wait_id = ids.wait(its, step, 1, 1)
            awaited = RunEventAwaited(
                at=now, step=step, round=1, wait_id=wait_id, source=SOURCE, match=wanted, until=None
            )
            begun: tuple[Event, ...] = () if run_id else (_created(now), RunStarted(at=now))
            runs[its] = (*begun, awaited)
            opened = WaitOpened(
                at=now, run_id=its, step=step, round=1, source=SOURCE, match=wanted, since=now, consumed=()
            )
            waits[wait_id] = (opened,)
            made.append((wait_id, its))
        await self.record.plant_all(run.CATEGORY, runs)
        await self.record.plant_all(wait.CATEGORY, waits)
        return made

    async def opened(self, *wait_ids: UUID) -> None:
        """Tell ingest that waits were opened."""
        assert set(await self.bus.tell("ingest-history", "wait.opened", *wait_ids)) == {ACK}

    async def event(self, external_id: str = "17", *, jira_key: str = "CORE-7", event: str = "comment_created") -> UUID:
        """A delivery that the door stored; nobody has been told."""
        delivery = Delivery(
            id=ids.inbound(SOURCE, external_id),
            tenant_group=self.record.group,
            tenant=self.record.tenant,
            source=SOURCE,
            adapter="jira",
            external_id=external_id,
            event=event,
            keys={"jira_key": jira_key},
            payload=PAYLOAD,
            body_sha256="1" * 64,
            traceparent=None,
        )
        assert await self.record.store.accept(delivery, {PAYLOAD.digest: PAYLOAD_BYTES})
        return delivery.id

    async def arrives(self, *event_ids: UUID) -> None:
        """Tell ingest of deliveries."""
        assert set(await self.bus.notify(SOURCE, *event_ids)) == {ACK}

    async def at(self, wait_id: UUID) -> wait.State:
        return await self.record.state(wait.CATEGORY, wait_id)

    async def routed(self, event_id: UUID) -> inbound.State:
        return await self.record.state(inbound.CATEGORY, event_id)

    async def run_of(self, wait_id: UUID) -> UUID:
        run_id = (await self.at(wait_id)).run_id
        assert run_id is not None
        return run_id


def _created(now: datetime) -> RunCreated:
    return RunCreated(
        at=now,
        definition_id="core-dev",
        hash="0" * 64,
        bundle=PAYLOAD,
        context={},
        initiated_by=_OWNER,
        trigger=Trigger(kind="manual"),
    )


@asynccontextmanager
async def waiting(database: Database) -> AsyncIterator[Waiting]:
    """A world on an empty database."""
    async with AsyncExitStack() as exit_, open_record(database) as record:
        source = SourceSynced(
            at=await record.store.now(),
            source_id=SOURCE,
            adapter="jira",
            secret_ref=None,
            signature_header="x-hub-signature-256",
            hash="0" * 64,
            window_seconds=WINDOW.total_seconds(),
        )
        await record.plant(definition.CATEGORY, ids.source(SOURCE), source)
        buses = (ListeningBus(), ListeningBus())
        async with exit_:
            for bus in buses:
                service = build(await record.tools(bus))
                await service.start()
                exit_.push_async_callback(service.stop)
            yield Waiting(record, buses)

"""What ingest does with events: records each delivery once, and only then looks for who waits for it or is started."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from contracts.errors import MinutebookError
from contracts.events.inbound import SkippedTrigger
from libs.domain.inbound import CATEGORY, Command, Look, Receive, Route, Routing, State
from libs.eventstore.port import Delivery, Store
from libs.faultpoints import faultpoint
from libs.owner import Item, Owner
from libs.process import actor
from libs.telemetry.logs import get_logger
from services.ingest.queries import Queries
from services.ingest.routing import route
from services.ingest.waits import Failures, Offer, Waits, arrival_of

_ACTOR: Final = actor("ingest")

_log = get_logger("ingest")


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event of a tenant group as it stands in its stream."""

    tenant_group: UUID
    state: State


class Events:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Command], store: Store, queries: Queries, waits: Waits) -> None:
        self._owner = owner
        self._store = store
        self._queries = queries
        self._waits = waits

    async def take(self, delivery_ids: Collection[UUID]) -> Failures:
        """Record deliveries, then route what is recorded and was not routed, whoever recorded it."""
        deliveries = await self._store.deliveries(delivery_ids)
        recorded, failures = await self._receive(deliveries)
        earlier = set(delivery_ids) - {delivery.id for delivery in deliveries}
        recorded |= await self.recorded(earlier)
        faultpoint("inbound.recorded")
        unrouted = {i: event for i, event in recorded.items() if event.state.status == "received"}
        return failures | await self._route(unrouted)

    async def look(self, inbound_ids: Sequence[UUID]) -> Failures:
        """Deliveries whose notice was lost, and events that are due."""
        failures = await self.take(inbound_ids)
        heads = await self._store.heads(CATEGORY.name, inbound_ids)
        items = [_item(i, Look()) for i, head in heads.items() if head.state == "routed"]
        return failures | _failures(items, await self._owner.handle(items))

    async def recorded(self, inbound_ids: Collection[UUID]) -> dict[UUID, Recorded]:
        """Events that are in the record; the others are left out."""
        if not inbound_ids:
            return {}
        load = await self._store.load(CATEGORY.name, dict.fromkeys(inbound_ids, 0))
        return {
            inbound_id: Recorded(loaded.tenant_group, CATEGORY.fold(tuple(r.event for r in loaded.events)))
            for inbound_id, loaded in load.streams.items()
            if loaded.tenant_group is not None
        }

    async def routings(
        self, events: Mapping[UUID, Recorded], offers: Mapping[UUID, Offer]
    ) -> dict[UUID, Routing | MinutebookError]:
        """What follows from recorded events by what is declared and waits now. Waits that fit take them by this."""
        taken = dict(zip(offers, await self._waits.offer([*offers.values()]), strict=True))
        sources: defaultdict[UUID, set[str]] = defaultdict(set)
        for event in events.values():
            sources[event.tenant_group].add(event.state.source)
        known = {group: await self._queries.known(group, of_group) for group, of_group in sources.items()}
        routings: dict[UUID, Routing | MinutebookError] = {}
        for inbound_id, event in events.items():
            resumed = taken[inbound_id]
            if isinstance(resumed, MinutebookError):
                routings[inbound_id] = resumed
                continue
            found = route(event.tenant_group, event.state, known[event.tenant_group])
            routings[inbound_id] = Routing(
                inbound_id=inbound_id, starts=found.starts, skipped=found.skipped, resumed=resumed, why=found.why
            )
        return routings

    async def _receive(self, deliveries: Sequence[Delivery]) -> tuple[dict[UUID, Recorded], Failures]:
        items = [_received(delivery) for delivery in deliveries]
        recorded: dict[UUID, Recorded] = {}
        failures: Failures = {}
        for delivery, result in zip(deliveries, await self._owner.handle(items), strict=True):
            if isinstance(result, MinutebookError):
                failures[delivery.id] = result
            else:
                recorded[delivery.id] = Recorded(delivery.tenant_group, result.state)
        return recorded, failures

    async def _route(self, events: Mapping[UUID, Recorded]) -> Failures:
        if not events:
            return {}
        offers = {i: Offer(event.tenant_group, arrival_of(i, event.state)) for i, event in events.items()}
        routings = await self.routings(events, offers)
        faultpoint("inbound.matched")
        failures: Failures = {i: found for i, found in routings.items() if isinstance(found, MinutebookError)}
        items = [_item(i, Route(routing=found)) for i, found in routings.items() if isinstance(found, Routing)]
        for item, result in zip(items, await self._owner.handle(items), strict=True):
            if isinstance(result, MinutebookError):
                failures[item.stream_id] = result
            elif result.changed:
                _tell(item.stream_id, result.state.source, result.state.skipped)
        return failures


def _received(delivery: Delivery) -> Item[Command]:
    return Item(
        stream_id=delivery.id,
        command=Receive(
            source=delivery.source,
            external_id=delivery.external_id,
            event=delivery.event,
            keys=dict(delivery.keys),
            payload=delivery.payload,
            body_sha256=delivery.body_sha256,
        ),
        actor=_ACTOR,
        causation=delivery.id,
        tenant_group=delivery.tenant_group,
        tenant=delivery.tenant,
        traceparent=delivery.traceparent,
    )


def _item(inbound_id: UUID, command: Command) -> Item[Command]:
    return Item(stream_id=inbound_id, command=command, actor=_ACTOR, causation=inbound_id)


def _failures(items: Sequence[Item[Command]], results: Sequence[object]) -> Failures:
    looked = zip(items, results, strict=True)
    return {item.stream_id: result for item, result in looked if isinstance(result, MinutebookError)}


def _tell(inbound_id: UUID, source: str, skipped: Sequence[SkippedTrigger]) -> None:
    for each in skipped:
        _log.warning(
            "trigger skipped",
            inbound_id=str(inbound_id),
            source=source,
            definition_id=each.definition_id,
            reason=each.reason,
        )

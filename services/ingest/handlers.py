"""What ingest does with notices of deliveries, and with deliveries that waited too long for one."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

from contracts.envelope import InboundNotice
from contracts.errors import MinutebookError
from libs.bus.disposition import of, parse
from libs.bus.port import ACK, Delivered, Disposition
from libs.domain.inbound import Record, State
from libs.eventstore.port import Deliveries, Delivery
from libs.owner import Item, Owner
from libs.process import actor
from libs.telemetry.logs import get_logger
from services.ingest.queries import Queries
from services.ingest.routing import route

_ACTOR = actor("ingest")

_log = get_logger("ingest")


class Handlers:
    """Plain functions over the owner of the category."""

    def __init__(self, owner: Owner[State, Record], deliveries: Deliveries, queries: Queries) -> None:
        self._owner = owner
        self._deliveries = deliveries
        self._queries = queries

    async def on_notices(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        """Record what the notices name. A notice comes again when one of its deliveries could not be recorded."""
        notices: list[InboundNotice | Disposition] = []
        for message in batch:
            try:
                notices.append(parse(InboundNotice, message.data))
            except MinutebookError as error:
                notices.append(of(error, deliveries=message.deliveries))
        named = {i for notice in notices if isinstance(notice, InboundNotice) for i in notice.delivery_ids}
        failures = await self.record(named)
        dispositions = []
        for notice, message in zip(notices, batch, strict=True):
            if isinstance(notice, Disposition):
                dispositions.append(notice)
                continue
            failed = [failures[i] for i in notice.delivery_ids if i in failures]
            # One that is worth repeating decides: a delivery must not be lost with another's term.
            verdicts = sorted((of(error, deliveries=message.deliveries) for error in failed), key=_urgency)
            dispositions.append(verdicts[0] if verdicts else ACK)
        return dispositions

    async def on_wake(self, _category: str, delivery_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Deliveries whose notice was lost."""
        return await self.record(delivery_ids)

    async def record(self, delivery_ids: Collection[UUID]) -> dict[UUID, MinutebookError]:
        """Record deliveries with the runs that they start; those that were recorded before are left alone."""
        by_group: defaultdict[UUID, list[Delivery]] = defaultdict(list)
        for delivery in await self._deliveries.deliveries(delivery_ids):
            by_group[delivery.tenant_group].append(delivery)
        items: list[Item[Record]] = []
        for tenant_group, deliveries in by_group.items():
            known = await self._queries.known(tenant_group, {delivery.source for delivery in deliveries})
            items += [_item(delivery, route(delivery, known)) for delivery in deliveries]
        results = await self._owner.handle(items)
        failures: dict[UUID, MinutebookError] = {}
        for item, result in zip(items, results, strict=True):
            if isinstance(result, MinutebookError):
                failures[item.stream_id] = result
            elif result.changed:
                _tell(item.command)
        return failures


def _item(delivery: Delivery, command: Record) -> Item[Record]:
    return Item(
        stream_id=delivery.id,
        command=command,
        actor=_ACTOR,
        causation=delivery.id,
        tenant_group=delivery.tenant_group,
        tenant=delivery.tenant,
        traceparent=delivery.traceparent,
    )


def _tell(command: Record) -> None:
    for skipped in command.skipped:
        _log.warning(
            "trigger skipped",
            inbound_id=str(command.inbound_id),
            source=command.source,
            definition_id=skipped.definition_id,
            reason=skipped.reason,
        )


def _urgency(disposition: Disposition) -> int:
    return ("nak", "term", "ack").index(disposition.verdict)

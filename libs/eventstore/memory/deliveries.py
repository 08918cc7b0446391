"""Deliveries of webhooks in memory: kept before anything knows what they are."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from libs.eventstore.memory.holding import Holding
from libs.eventstore.port import (
    Delivery,
)


class MemoryDeliveries(Holding):
    """As `libs.eventstore.deliveries` has them."""

    async def accept(self, delivery: Delivery, blobs: Mapping[str, bytes]) -> bool:
        if delivery.id in self._deliveries or delivery.id in self.rows["inbound"]:
            return False
        await self.put_blobs(delivery.tenant_group, blobs)
        self._deliveries[delivery.id] = replace(delivery, received_at=self.clock)
        return True

    async def deliveries(self, ids: Collection[UUID]) -> Sequence[Delivery]:
        return [delivery for delivery in self._in_order() if delivery.id in ids]

    async def body_of(self, delivery_id: UUID) -> str | None:
        head = self.rows["inbound"].get(delivery_id)
        if head is not None:
            return str(head.columns["body_sha256"])
        delivery = self._deliveries.get(delivery_id)
        return None if delivery is None else delivery.body_sha256

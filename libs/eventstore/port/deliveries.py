"""Webhooks between the door and ingest."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from contracts.base import BlobRef


@dataclass(frozen=True, slots=True)
class Delivery:
    """A webhook as the api stored it, before ingest recorded it."""

    id: UUID
    tenant_group: UUID
    tenant: UUID
    source: str
    adapter: str
    external_id: str
    event: str
    keys: Mapping[str, Any]
    payload: BlobRef
    body_sha256: str
    traceparent: str | None
    received_at: datetime | None = None


class Deliveries(Protocol):
    """Webhooks between the door and ingest."""

    async def accept(self, delivery: Delivery, blobs: Mapping[str, bytes]) -> bool:
        """Store a delivery under its derived id; False when it is there already."""
        ...

    async def deliveries(self, ids: Collection[UUID]) -> Sequence[Delivery]:
        """Read deliveries that are not recorded yet. An `append` to category `inbound` removes them from here."""
        ...

    async def body_of(self, delivery_id: UUID) -> str | None:
        """The SHA-256 of the body that a delivery had, recorded or not; None when there is no such delivery."""
        ...

"""Webhooks between the door and ingest, on PostgreSQL."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Final
from uuid import UUID

from contracts.base import BlobRef
from libs.canonical import canonical
from libs.eventstore.adapter import Adapter, digest_bytes
from libs.eventstore.port import Delivery

# One that ingest has recorded already is a duplicate too, though its row here is gone.
_ACCEPT: Final = """
with stored as (
  insert into deliveries(id, tenant_group, tenant, source, adapter, external_id, event, keys, payload_digest,
                         payload_bytes, body_sha256, traceparent)
  select $1, $2, $3, $4, $5, $6, $7, $8::text::json, $9, $10, $11, $12
   where not exists (select from inbound_heads where stream_id = $1)
  on conflict (id) do nothing returning id),
kept as (
  insert into blobs(tenant_group, digest, content)
  select $2, b.digest, b.content from unnest($13::bytea[], $14::bytea[]) as b(digest, content)
   where exists (select from stored) order by b.digest
  on conflict (tenant_group, digest) do nothing)
select id from stored"""

# The statement above may have begun before ingest recorded the first delivery, and inserted after ingest removed its
# row: to its snapshot neither is there. A second look, after its commit, sees what was recorded.
_REPEATED: Final = """
delete from deliveries d
 where d.id = $1 and exists (select from inbound_heads h where h.stream_id = d.id) returning id"""


class PostgresDeliveries(Adapter):
    """The port `Deliveries`."""

    async def accept(self, delivery: Delivery, blobs: Mapping[str, bytes]) -> bool:
        rows = await self._fetch(
            _ACCEPT,
            delivery.id,
            delivery.tenant_group,
            delivery.tenant,
            delivery.source,
            delivery.adapter,
            delivery.external_id,
            delivery.event,
            canonical(delivery.keys).decode(),
            digest_bytes(delivery.payload.digest),
            delivery.payload.bytes,
            delivery.body_sha256,
            delivery.traceparent,
            [digest_bytes(digest) for digest in blobs],
            list(blobs.values()),
        )
        return bool(rows) and not await self._fetch(_REPEATED, delivery.id)

    async def deliveries(self, ids: Collection[UUID]) -> Sequence[Delivery]:
        rows = await self._fetch(
            "select id, tenant_group, tenant, source, adapter, external_id, event, keys::text as keys,"
            " encode(payload_digest, 'hex') as digest, payload_bytes, body_sha256, traceparent, received_at"
            " from deliveries where id = any($1::uuid[]) order by received_at, id",
            list(ids),
        )
        return [
            Delivery(
                id=row["id"],
                tenant_group=row["tenant_group"],
                tenant=row["tenant"],
                source=row["source"],
                adapter=row["adapter"],
                external_id=row["external_id"],
                event=row["event"],
                keys=json.loads(row["keys"]),
                payload=BlobRef(digest=row["digest"], bytes=row["payload_bytes"]),
                body_sha256=row["body_sha256"],
                traceparent=row["traceparent"],
                received_at=row["received_at"],
            )
            for row in rows
        ]

    async def body_of(self, delivery_id: UUID) -> str | None:
        row = await self._fetchrow(
            "select body_sha256 from inbound_heads where stream_id = $1"
            " union all select body_sha256 from deliveries where id = $1 limit 1",
            delivery_id,
        )
        return None if row is None else str(row["body_sha256"])

"""Rows of the history as facts."""

from typing import Any, Final

import asyncpg

from libs.eventstore.mapper import SPILLED_PREFIX, Mapper
from libs.eventstore.port import Recorded

FACT: Final = """
  e.era, e.xid::text::bigint as xid, e.position, e.stream_id, e.version, e.category, e.type, e.event_version,
  e.payload::text as payload, e.metadata::text as metadata, e.tenant_group, e.recorded_at, e.digest
""".strip()
"""The columns of a fact, of `workflow_history` as `e`."""

SPILLED: Final = f"""
left join blobs b on b.tenant_group = e.tenant_group and b.digest = case
  when starts_with(e.payload::text, '{SPILLED_PREFIX}')
  then decode(substr(e.payload::text, {len(SPILLED_PREFIX) + 1}, 64), 'hex') end
""".strip()
"""Joins the content of payloads that were too long for their column, as `b`."""


def fact(row: asyncpg.Record, mapper: Mapper) -> Recorded:
    """Return the fact of a row that has the columns `FACT` and `b.content`. `mapper.people` have recalled it.

    Raises:
        contracts.errors.Unavailable: its type or version is unknown to this release.
        contracts.errors.Broken: it cannot be read.
    """
    content: Any = row["content"]
    stream_id, version, type_ = row["stream_id"], row["version"], row["type"]
    state = row["payload"] if content is None else content
    return Recorded(
        stream_id=stream_id,
        version=version,
        category=row["category"],
        type=type_,
        event=mapper.read(type_, row["event_version"], state, stream_id, version),
        metadata=mapper.read_metadata(row["metadata"]),
        recorded_at=row["recorded_at"],
        era=row["era"],
        xid=row["xid"],
        position=row["position"],
        digest=row["digest"],
    )

"""Reads of histories and blobs that several views share. Always of one tenant group."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar
from uuid import UUID

from pydantic import JsonValue

from contracts.base import BlobRef
from libs.domain.core import Category
from libs.eventstore.port import EventStore, Recorded

S = TypeVar("S")

Histories = Mapping[UUID, tuple[Recorded, ...]]


class Reads:
    """Whole streams, and content by its digest."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def histories(self, category: str, tenant_group: UUID, stream_ids: Collection[UUID]) -> Histories:
        """Streams by id; absent ones are left out."""
        if not stream_ids:
            return {}
        return await self._store.events(category, stream_ids, tenant_group=tenant_group)

    async def contents(self, tenant_group: UUID, refs: Iterable[BlobRef | None]) -> Mapping[str, JsonValue]:
        """Content by digest."""
        digests = {ref.digest for ref in refs if ref is not None}
        if not digests:
            return {}
        blobs = await self._store.blobs(tenant_group, digests)
        return {digest: json.loads(content) for digest, content in blobs.items()}


def fold(category: Category[S], history: Iterable[Recorded]) -> S:
    """The state that a history adds up to."""
    return category.fold(tuple(recorded.event for recorded in history))


def content_of(contents: Mapping[str, JsonValue], ref: BlobRef | None) -> JsonValue:
    """The content of a reference; None where there is none."""
    return contents.get(ref.digest) if ref is not None else None

"""What travels on JetStream: addresses of facts, never the facts themselves. A doorbell, not the truth."""

from typing import Literal
from uuid import UUID

from contracts.base import Frozen


class Address(Frozen):
    """Where a fact stands. `correlation` is the run that it belongs to."""

    stream_id: UUID
    version: int
    correlation: UUID
    traceparent: str | None = None


class Envelope(Frozen):
    """Facts of one type that one statement wrote; subject `history.<category>.<type>`."""

    era: int
    facts: tuple[Address, ...]


class Wake(Frozen):
    """Streams of one category whose `wake_at` has come; subject `wake.<service>`."""

    category: str
    stream_ids: tuple[UUID, ...]


class Doorbell(Frozen):
    """There is work to claim under this subject, `work.<executor>.<queue>`."""

    count: int


class InboundNotice(Frozen):
    """Deliveries that were stored and wait for ingest; subject `inbound.<source>`."""

    delivery_ids: tuple[UUID, ...]


Owner = Literal["api", "planner", "scheduler", "runner", "decision", "ingest", "effects"]

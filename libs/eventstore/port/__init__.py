"""The port of the event store: what owners may ask of the history, in every adapter alike.

`read` and `written` are the shapes; each other room is one protocol with what it alone speaks of. `Store` is all of
them.
"""

from libs.eventstore.port.claims import Claimed, Claims
from libs.eventstore.port.clockwork import Clockwork, Due, Page, Woken
from libs.eventstore.port.deliveries import Deliveries, Delivery
from libs.eventstore.port.eras import Era, Eras
from libs.eventstore.port.heads import Arrived, Earlier, Heads, HeadView, LineHead
from libs.eventstore.port.read import Load, Loaded, Recorded, Snapshot, SnapshotKey, nothing_of
from libs.eventstore.port.store import EventStore, Store
from libs.eventstore.port.verification import Difference, Verification
from libs.eventstore.port.written import Append, Appended, BatchResult, BirthRow, Fate, OutboxToken, Written

__all__ = [
    "Append",
    "Appended",
    "Arrived",
    "BatchResult",
    "BirthRow",
    "Claimed",
    "Claims",
    "Clockwork",
    "Deliveries",
    "Delivery",
    "Difference",
    "Due",
    "Earlier",
    "Era",
    "Eras",
    "EventStore",
    "Fate",
    "HeadView",
    "Heads",
    "LineHead",
    "Load",
    "Loaded",
    "OutboxToken",
    "Page",
    "Recorded",
    "Snapshot",
    "SnapshotKey",
    "Store",
    "Verification",
    "Woken",
    "Written",
    "nothing_of",
]

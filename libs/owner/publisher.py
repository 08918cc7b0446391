"""Rings the bell after a commit. What it cannot publish, the scheduler's sweep finds in the outbox."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from contracts.envelope import Address, Doorbell, Envelope
from contracts.errors import Unavailable
from contracts.subjects import HEARD, history
from libs.bus.port import NOT_CONNECTED, Bus, Message
from libs.clock import monotonic
from libs.eventstore.port import BatchResult, EventStore, Written
from libs.faultpoints import faultpoint
from libs.telemetry.outage import Outage

FACTS_PER_ENVELOPE_MAX: Final = 1_000
"""About 250 bytes each keeps an envelope well under `contracts.subjects.ENVELOPE_BYTES_MAX`."""


TRY_AGAIN_SECONDS: Final = 1.0
"""How long nobody tries after a bus that was there has not acknowledged; then one does, for all."""


class Publisher:
    """Publishes what a statement wrote, one envelope per type, and forgets its outbox row once all is acked."""

    def __init__(self, bus: Bus, store: EventStore) -> None:
        self._bus = bus
        self._store = store
        self._outage = Outage(
            away="facts are committed but not published, the sweep will publish them", back="facts are published again"
        )
        self._not_before: float | None = None

    async def publish(
        self, result: BatchResult, work: Iterable[str] = (), *, quiet: frozenset[str] = frozenset()
    ) -> None:
        """Publish the facts but those of `quiet` types, and ring the doorbell of each work subject, repeats counted.

        A bus that is away is logged and no error: the facts are committed, and their outbox row is still there. One
        that is there and acknowledges nothing, as with a full disk, is waited for by one caller at a time: the others
        have an answer to give, and the sweep comes by.
        """
        if result.outbox is None:
            return
        id_ = f"{result.outbox.era}.{result.outbox.xid}"
        messages = [
            Message(subject=subject, data=Doorbell(count=count).model_dump_json().encode(), id=f"{id_}.{subject}")
            for subject, count in Counter(work).items()
        ]
        messages += envelopes([w for w in result.written if w.type not in quiet], era=result.era, id_=id_)
        if not messages:
            await self._store.published(result.outbox)
            return
        faultpoint("publish.before")
        if self._not_before is not None:
            if monotonic() < self._not_before:
                return
            self._not_before = math.inf  # the others leave it to this one until it knows
        try:
            await self._bus.publish(messages)
        except Unavailable as error:
            self._not_before = None
            if error.code != NOT_CONNECTED:
                self._not_before = monotonic() + TRY_AGAIN_SECONDS
                self._outage.away(code=error.code)
            return
        except BaseException:
            self._not_before = None
            raise
        self._not_before = None
        self._outage.back()
        faultpoint("publish.acked")
        await self._store.published(result.outbox)


def envelopes(written: Sequence[Written], *, era: int, id_: str) -> list[Message]:
    """Envelopes of the facts that somebody hears of, one per type and thousand.

    `id_` names them for the bus's dedupe window.
    """
    by_subject: defaultdict[str, list[Address]] = defaultdict(list)
    for fact in written:
        subject = history(fact.type)
        if subject in HEARD:
            by_subject[subject].append(
                Address(
                    stream_id=fact.stream_id,
                    version=fact.version,
                    correlation=fact.metadata.correlation,
                    traceparent=fact.metadata.traceparent,
                )
            )
    messages = []
    for subject, facts in by_subject.items():
        for start in range(0, len(facts), FACTS_PER_ENVELOPE_MAX):
            part = tuple(facts[start : start + FACTS_PER_ENVELOPE_MAX])
            messages.append(
                Message(
                    subject=subject,
                    data=Envelope(era=era, facts=part).model_dump_json().encode(),
                    id=f"{id_}.{subject}.{start}",
                )
            )
    return messages

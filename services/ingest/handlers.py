"""What ingest does with notices of deliveries, with the facts of runs and their waits, and with wakes."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.envelope import Address, InboundNotice
from contracts.errors import MinutebookError
from libs.bus.disposition import of, parse
from libs.bus.port import ACK, Delivered, Disposition
from libs.domain import wait
from services.ingest.events import Events
from services.ingest.waits import Waits


class Handlers:
    """From messages to what ingest does for events and for waits."""

    def __init__(self, events: Events, waits: Waits) -> None:
        self._events = events
        self._waits = waits

    async def on_notices(self, batch: Sequence[Delivered]) -> Sequence[Disposition]:
        """Take what the notices name. A notice comes again when one of its deliveries could not be taken."""
        notices: list[InboundNotice | Disposition] = []
        for message in batch:
            try:
                notices.append(parse(InboundNotice, message.data))
            except MinutebookError as error:
                notices.append(of(error, deliveries=message.deliveries))
        named = {i for notice in notices if isinstance(notice, InboundNotice) for i in notice.delivery_ids}
        failures = await self._events.take(named)
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

    async def on_facts(self, type_: str, addresses: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """A wait was opened: look back. A run ended or one of its steps failed: nobody waits there any more."""
        streams = {address.stream_id for address in addresses}
        if type_ == "wait.opened":
            return await self._waits.look_back(streams)
        return await self._waits.close_of_runs(streams)

    async def on_wake(self, category: str, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Whose message was lost, and what is due."""
        if category == wait.CATEGORY.name:
            return await self._waits.look(stream_ids)
        return await self._events.look(stream_ids)


def _urgency(disposition: Disposition) -> int:
    return ("nak", "term", "ack").index(disposition.verdict)

"""What becomes of messages that fail: tried again a bounded number of times, then kept as dead letters, never lost."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from contracts.envelope import Owner as ServiceName
from contracts.errors import Conflict, MinutebookError, Rejected, Stopping, Unavailable
from contracts.ids import derive
from contracts.subjects import DurableSpec
from libs.bus.disposition import backoff, of
from libs.bus.jetstream import JetStreamBus
from libs.bus.port import BatchHandler, Delivered, Disposition, Failure
from libs.eventstore.letters import DeadLetters, NewLetter
from libs.process.told import told
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger

COUNTED_MAX: Final = 10_000
"""Failing parts of messages whose tries are remembered. What is forgotten is tried anew from the first."""

CONFLICTS_PER_TRY: Final = 10
"""Lost races that count as one try: they come again within milliseconds, and are nobody's fault."""

_OUTAGES: Final = ("postgres.", "bus.", "era.")

_UNSAID: Final = MinutebookError("message.refused", "its handler gave it up without saying why")

_log = get_logger("letters")


class Letters:
    """Judges what a durable's handler could not do.

    What the database or the bus being away makes fail is tried for ever and counts as no try; what is broken is kept
    at once; anything else once it has failed `tries_max` times in this process. Parts of a message that were done are
    done: only the others become letters. A letter that cannot be written sends its message round again.
    """

    def __init__(self, kept: DeadLetters, service: ServiceName, *, tries_max: int) -> None:
        self._kept = kept
        self._service = service
        self._tries_max = tries_max
        self._tries: OrderedDict[UUID, int] = OrderedDict()

    def judged(self, durable: DurableSpec, handler: BatchHandler) -> BatchHandler:
        """The handler, with its failures judged."""

        async def on_batch(batch: Sequence[Delivered]) -> Sequence[Disposition]:
            try:
                dispositions = await handler(batch)
            except Exception as error:
                if len(batch) > 1:
                    raise  # whoever feeds us finds out which one it is
                if not isinstance(error, MinutebookError):
                    _log.exception("handler failed", durable=durable.name, subject=batch[0].subject)
                judged = await self._judge(durable, batch[0], of(error, deliveries=batch[0].deliveries))
                if judged.verdict == "nak":
                    raise  # it comes again; and whoever feeds us sees an outage by its errors
                return [judged]
            if len(dispositions) != len(batch):
                return dispositions
            return [
                disposition if _fine(disposition) else await self._judge(durable, message, disposition)
                for message, disposition in zip(batch, dispositions, strict=True)
            ]

        return on_batch

    async def _judge(self, durable: DurableSpec, message: Delivered, disposition: Disposition) -> Disposition:
        failures = disposition.failures or (Failure(disposition.error or _UNSAID, message.data),)
        if not disposition.failures and disposition.error is None and disposition.verdict == "nak":
            return disposition  # handed back, not failed
        dead: list[NewLetter] = []
        again = False
        for failure in failures:
            letter = self._letter(durable, message, failure)
            if letter is not None:
                dead.append(letter)
            elif not isinstance(failure.error, Rejected):
                again = True
        if dead and not await self._keep(durable, dead):
            return Disposition("nak", backoff(message.deliveries))
        if disposition.verdict == "ack" or again:
            return disposition
        return Disposition("term")

    def _letter(self, durable: DurableSpec, message: Delivered, failure: Failure) -> NewLetter | None:
        """The letter of a failure that is given up on now; None for what is tried again, or was refused for good."""
        error = failure.error
        if isinstance(error, Rejected | Stopping) or _of_an_outage(error):
            return None
        id_ = derive("dead_letter", durable.name, message.subject, failure.data.hex())
        tries = self._tries[id_] = self._tries.pop(id_, 0) + 1
        while len(self._tries) > COUNTED_MAX:
            self._tries.popitem(last=False)
        if isinstance(error, Conflict):
            tries //= CONFLICTS_PER_TRY
        if isinstance(error, Conflict | Unavailable) and tries < self._tries_max:
            return None
        del self._tries[id_]
        code, reason = _described(error)
        return NewLetter(
            id=id_,
            service=self._service,
            durable=durable.name,
            subject=message.subject,
            stream_id=failure.stream_id,
            code=code,
            message=reason,
            data=failure.data,
            tries=max(tries, 1),
        )

    async def _keep(self, durable: DurableSpec, letters: Sequence[NewLetter]) -> bool:
        try:
            await self._kept.keep(letters)
        except MinutebookError as error:
            if not told(error):
                _log.error("dead letters cannot be kept, their messages come again", code=error.code)
            return False
        metrics.DEAD_LETTERED.labels(durable.name).inc(len(letters))
        for letter in letters:
            _log.error(
                "given up, a dead letter is kept",
                durable=durable.name,
                subject=letter.subject,
                stream_id=None if letter.stream_id is None else str(letter.stream_id),
                code=letter.code,
                reason=letter.message,
                tries=letter.tries,
            )
        return True


class LetterBus(JetStreamBus):
    """A service's connection to NATS that keeps what its handlers cannot do."""

    def __init__(self, url: str, *, letters: Letters, **options: Any) -> None:
        super().__init__(url, **options)
        self._letters = letters

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        """See `Bus.subscribe`."""
        super().subscribe(durable, self._letters.judged(durable, handler), batch_max=batch_max)


def _of_an_outage(error: Exception) -> bool:
    """Whether the database or the bus is away, or another one than before: that says nothing about the message."""
    return isinstance(error, Unavailable) and error.code.startswith(_OUTAGES)


def _fine(disposition: Disposition) -> bool:
    return disposition.verdict == "ack" and not disposition.failures


def _described(error: Exception) -> tuple[str, str]:
    """Code and reason: our own text, but of others only their kind, as they may quote what the message held."""
    if isinstance(error, MinutebookError):
        return error.code, error.message
    return "message.failed", f"{type(error).__name__}; see the log"

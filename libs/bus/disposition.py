"""From errors to what becomes of a message, in one total function; and the reading of messages.

| Error | Message |
|---|---|
| Rejected | ack: the domain said no, and would say it again |
| Conflict | nak, again almost at once |
| Unavailable | nak, with exponential backoff by delivery and jitter |
| Stopping | nak, at once: another replica takes it |
| Malformed, Broken, anything else | term: it is read here, and would fail again. `libs.process.letters` keeps it |
"""

import random
from datetime import timedelta
from typing import Final, TypeVar, cast

from pydantic import BaseModel, ValidationError

from contracts.errors import Conflict, Malformed, Rejected, Stopping, Unavailable
from libs.bus.port import ACK, Disposition

M = TypeVar("M", bound=BaseModel)

CONFLICT_DELAY: Final = timedelta(milliseconds=20)
BACKOFF_FIRST: Final = timedelta(milliseconds=250)
BACKOFF_MAX: Final = timedelta(seconds=30)

_REASONS_SHOWN_MAX: Final = 5

TERM: Final = Disposition("term")
HAND_BACK: Final = Disposition("nak")


def of(error: Exception, *, deliveries: int = 1) -> Disposition:
    """Return what becomes of a message whose handling failed. `deliveries` counts from 1, this one included."""
    match error:
        case Rejected():
            return ACK
        case Conflict():
            return Disposition("nak", CONFLICT_DELAY, error)
        case Unavailable():
            return Disposition("nak", backoff(deliveries), error)
        case Stopping():
            return HAND_BACK
        case _:
            return Disposition("term", error=error)


def backoff(deliveries: int) -> timedelta:
    """Return the pause after this many deliveries: doubled each time, capped at `BACKOFF_MAX`, half of it jitter.

    The jitter spreads what failed together, so that it does not come back together.
    """
    doublings = min(max(deliveries, 1) - 1, 16)
    ceiling = min(BACKOFF_FIRST * (1 << doublings), BACKOFF_MAX)
    return ceiling * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy


def parse(model: type[M], data: bytes) -> M:
    """Read a message as the model that its subject promises.

    Raises:
        contracts.errors.Malformed: with where and why, never with what the message holds.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise Malformed(
            "message.malformed", f"{len(data)} bytes are no {model.__name__}: {_reasons(model, error)}"
        ) from None


def _reasons(model: type[BaseModel], error: ValidationError) -> str:
    """Where and why, with only such names as the model itself has: a key may be as private as a value."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{_place(model, cast('tuple[object, ...]', each['loc']))}: {each['type']}" for each in found]
    more = len(shown) - _REASONS_SHOWN_MAX
    return "; ".join(shown[:_REASONS_SHOWN_MAX]) + (f"; and {more} more" if more > 0 else "")


def _place(model: type[BaseModel], loc: tuple[object, ...]) -> str:
    if not loc:
        return "message"
    return loc[0] if isinstance(loc[0], str) and loc[0] in model.model_fields else "unknown key"

"""Parameters that several routes take, limited to what PostgreSQL can compare."""

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import Header, Query
from pydantic import AfterValidator, AwareDatetime

from minutebook.models.operations import HASH_PATTERN
from services.api.waiting import WAIT_SECONDS_MAX

PAGE_LIMIT: Final = 50
PAGE_LIMIT_MAX: Final = 200
CURSOR_CHARS_MAX: Final = 500
TEXT_CHARS_MAX: Final = 200

_FIRST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST: Final = datetime(9000, 1, 1, tzinfo=UTC)


def comparable(at: datetime) -> datetime:
    """Refuse instants that overflow once their zone is taken off.

    Raises:
        ValueError: out of range.
    """
    if not _FIRST <= at <= _LAST:
        raise ValueError(f"an instant lies between {_FIRST.year} and {_LAST.year}")
    return at


Limit = Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX, description="items of a page at most")]
Cursor = Annotated[
    str | None,
    Query(max_length=CURSOR_CHARS_MAX, description="`next_cursor` of the page before, with the same filters"),
]
Text = Annotated[str, Query(max_length=TEXT_CHARS_MAX, pattern=r"^[^\x00]*$")]
Hash = Annotated[str, Query(pattern=HASH_PATTERN)]
"""A version's hash, or as many of its first characters as tell it apart."""
Moment = Annotated[AwareDatetime, AfterValidator(comparable)]
Wait = Annotated[
    float,
    Query(
        ge=0,
        le=WAIT_SECONDS_MAX,
        description="seconds to wait for the run to end, to be suspended, or to wait for somebody or something",
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=TEXT_CHARS_MAX,
        description="the same key of the same caller is the same request: repeat it when a reply was lost",
    ),
]

"""Minted ids. Derived ids are in `contracts.ids`.

A simulation seeds the source, so that a run of it can be repeated to the last id.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final
from uuid import UUID, uuid4

import uuid_utils.compat

_VERSION_4: Final = 4


class _Source:
    random: Random | None = None


def mint() -> UUID:
    """Return a new UUID of version 7: time-ordered, so that new rows stand together in their index."""
    if _Source.random is not None:
        return nonce()
    return uuid_utils.compat.uuid7()


def nonce() -> UUID:
    """Return a UUID that nobody can guess: for claims, whose knowledge is the right to report."""
    if _Source.random is not None:
        return UUID(int=_Source.random.getrandbits(128), version=_VERSION_4)
    return uuid4()


@contextmanager
def seeded(random: Random) -> Iterator[None]:
    """Draw every id from `random` meanwhile. For simulations only: such ids can be guessed."""
    before, _Source.random = _Source.random, random
    try:
        yield
    finally:
        _Source.random = before

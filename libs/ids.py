"""Minted ids: time-ordered, so that new rows stand together in their index. Derived ids are in `contracts.ids`."""

from uuid import UUID

import uuid_utils.compat


def mint() -> UUID:
    """Return a new UUID of version 7."""
    return uuid_utils.compat.uuid7()

"""Which content facts name. What people and models wrote may look like an address and is none: only fields count."""

from collections.abc import Iterator
from typing import Any

from contracts.base import BlobRef, Frozen


def refs_of(event: Frozen) -> Iterator[BlobRef]:
    """Every address of content in the fields of a fact, however deep."""
    for _, value in event:
        yield from _refs(value)


def _refs(value: Any) -> Iterator[BlobRef]:
    match value:
        case BlobRef():
            yield value
        case Frozen():
            yield from refs_of(value)
        case tuple() | list() | frozenset():
            for item in value:
                yield from _refs(item)
        case dict():
            for item in value.values():
                yield from _refs(item)
        case _:
            return

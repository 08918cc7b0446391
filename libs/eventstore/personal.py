"""Where in a model texts are personal: found once per model from its annotations, then followed in every value."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel

from contracts.personal import OF_STREAM, Personal

M = TypeVar("M", bound=BaseModel)

Turn = Callable[[UUID | None, str, str], str]
"""(whose text it is, the text, what stands for it once erased) → the text to put there."""


@dataclass(frozen=True, slots=True)
class Places:
    """The personal texts of a model, and its fields that hold models with such: one, none, or a tuple of them."""

    texts: tuple[tuple[str, Personal], ...]
    parts: tuple[tuple[str, "Places"], ...]

    def persons(self, value: Any, stream_id: UUID) -> Iterator[UUID]:
        """Whose texts a value holds."""
        for field, personal in self.texts:
            person = _whose(value, personal, stream_id)
            if person is not None and getattr(value, field) is not None:
                yield person
        for field, places in self.parts:
            part = getattr(value, field)
            for each in part if isinstance(part, tuple) else () if part is None else (part,):
                yield from places.persons(each, stream_id)

    def turned(self, value: M, stream_id: UUID, turn: Turn) -> M:
        """The value with `turn` applied to its personal texts; the same object when none of them changes."""
        changes: dict[str, Any] = {}
        for field, personal in self.texts:
            text = getattr(value, field)
            if text is not None:
                new = turn(_whose(value, personal, stream_id), text, personal.erased)
                if new is not text:
                    changes[field] = new
        for field, places in self.parts:
            part = getattr(value, field)
            if part is None:
                continue
            if isinstance(part, tuple):
                turned = tuple(places.turned(each, stream_id, turn) for each in part)
                if any(new is not old for new, old in zip(turned, part, strict=True)):
                    changes[field] = turned
            elif (new := places.turned(part, stream_id, turn)) is not part:
                changes[field] = new
        return value.model_copy(update=changes) if changes else value


@cache
def places_of(model: type[BaseModel]) -> Places | None:
    """Return where a model's personal texts are, None when it has none.

    Raises:
        TypeError: they stand where they would not be found: in a mapping, or in one of several models of a union.
    """
    texts, parts = [], []
    for name, field in model.model_fields.items():
        marks = [mark for mark in field.metadata if isinstance(mark, Personal)]
        if marks:
            texts.append((name, marks[0]))
            continue
        inside = [(each, places) for each in _models(field.annotation) if (places := places_of(each)) is not None]
        if not inside:
            continue
        if len(inside) > 1 or not _is_followed(field.annotation, inside[0][0]):
            raise TypeError(f"{model.__name__}.{name} holds personal texts where they cannot be followed")
        parts.append((name, inside[0][1]))
    return Places(tuple(texts), tuple(parts)) if texts or parts else None


_UNIONS: Final = (Union, UnionType)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def _is_followed(annotation: Any, model: type[BaseModel]) -> bool:
    """Whether an annotation is the model, a tuple of it, or either or None."""
    if get_origin(annotation) in _UNIONS:
        rest = [each for each in get_args(annotation) if each is not NoneType]
        return len(rest) == 1 and _is_followed(rest[0], model)
    return annotation is model or (get_origin(annotation) is tuple and get_args(annotation) == (model, ...))


def _whose(value: Any, personal: Personal, stream_id: UUID) -> UUID | None:
    if personal.of == OF_STREAM:
        return stream_id
    owner = getattr(value, personal.of)
    if owner is None or isinstance(owner, UUID):
        return owner
    person: UUID | None = owner.person
    return person

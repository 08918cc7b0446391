"""Every fact has its sentence."""

import typing
from datetime import UTC, datetime
from typing import Any, Literal, get_args, get_origin
from uuid import UUID

import pytest
from pydantic import AwareDatetime, BaseModel

import contracts.events  # noqa: F401  registers every event
from contracts.base import Actor, BlobRef, Event
from contracts.registry import registered
from services.api.words import describe

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
WHO = Actor(kind="user", name="priya@example.com")


def example(annotation: Any) -> Any:
    """A plausible value of a field's type."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return example(arguments[0])
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        return ()
    if origin is dict or annotation is dict:
        return {}
    if type(None) in arguments:
        return None
    if annotation is BlobRef:
        return BlobRef(digest="0" * 64, bytes=2)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return built(annotation)
    plain: dict[Any, Any] = {
        str: "x",
        int: 1,
        float: 1.0,
        bool: True,
        UUID: UUID(int=1),
        datetime: NOW,
        AwareDatetime: NOW,
    }
    return plain[annotation]


def built(model: type[BaseModel]) -> Any:
    values = {}
    for name, field in model.model_fields.items():
        wide = "0" * 64 if any("[0-9a-f]{64}" in str(meta) for meta in field.metadata) else None
        values[name] = wide or (NOW if name in {"at", "not_before"} else example(field.annotation))
    return model.model_validate(values)


@pytest.mark.parametrize("model", registered().values(), ids=lambda model: model.__name__)
def test_every_event_type_has_a_sentence(model: type[Event]) -> None:
    event = built(model)
    text = describe(event, birth=event, actor=WHO)
    assert len(text) >= 10
    assert not text.endswith(".")
    assert "\n" not in text
    assert "None" not in text


def test_an_event_that_nobody_put_into_words_is_noticed() -> None:
    with pytest.raises(NotImplementedError):
        describe(Event(at=NOW), birth=Event(at=NOW), actor=WHO)

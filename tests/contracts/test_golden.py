"""One example value of every message, kept beside the code: what was once written must be read for ever."""

import importlib
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent
from pydantic import BaseModel

import contracts
from contracts.base import Frozen, Metadata
from contracts.commands import COMMANDS
from contracts.events import CATEGORIES
from contracts.registry import registered
from contracts.replies import Reply, RunChanged
from libs.canonical import parse
from libs.eventstore.mapper import Mapper

GOLDEN = Path(contracts.__file__).parent / "golden"
EVENTS = {f"events/{name}.v{version}.json": model for (name, version), model in registered().items()}


def _of_module(name: str, folder: str) -> dict[str, type[BaseModel]]:
    """Every message of a module by its file; a generic one stands for all that it can hold."""
    found = vars(importlib.import_module(name)).values()
    return {
        f"{folder}/{re.sub(r'(?<!^)(?=[A-Z])', '_', model.__name__).lower()}.json": model
        for model in found
        if isinstance(model, type) and issubclass(model, Frozen) and model.__module__ == name and model is not Reply
    }


MODELS: dict[str, type[BaseModel]] = {
    **EVENTS,
    **{f"commands/{subject}.json": model for subject, model in COMMANDS.items()},
    **_of_module("contracts.replies", "replies"),
    **_of_module("contracts.envelope", "messages"),
    **_of_module("contracts.requests", "messages"),
    "replies/reply.json": Reply[RunChanged],
    "messages/metadata.json": Metadata,
}


def text(file: str) -> str:
    return (GOLDEN / file).read_text("utf-8")


def test_every_message_has_its_file_and_every_file_its_message() -> None:
    files = {str(path.relative_to(GOLDEN)) for path in GOLDEN.rglob("*") if path.is_file()}
    assert files == set(MODELS), "add an example of each new message; never change or remove one of an event"


def test_every_event_belongs_to_a_category() -> None:
    assert {name.partition(".")[0] for name, _ in registered()} == set(CATEGORIES)


@pytest.mark.parametrize("file", sorted(MODELS))
def test_a_golden_message_reads_as_itself(file: str) -> None:
    strict: Any = parse(text(file).encode(), what=file, bytes_max=1 << 20)
    message = MODELS[file].model_validate_json(text(file))
    assert json.dumps(message.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n" == text(file)
    assert set(strict) == set(MODELS[file].model_fields), "an example shows every field"
    assert MODELS[file].model_validate(strict) == message


@pytest.mark.parametrize("file", sorted(EVENTS))
def test_a_golden_event_is_stored_byte_for_byte(file: str) -> None:
    name, version = re.fullmatch(r"events/(.+)\.v(\d+)\.json", file).groups()  # type: ignore[union-attr]  # made above
    stored = json.dumps(json.loads(text(file)), separators=(",", ":"), ensure_ascii=False).encode()
    mapper, stream = Mapper(), UUID(int=1)
    event = mapper.to_event(
        StoredEvent(originator_id=stream, originator_version=1, topic=f"{name}/{version}", state=stored)
    )
    again = mapper.to_stored(event, stream, 1)
    assert (again.topic, again.state) == (f"{name}/{version}", stored)


@pytest.mark.parametrize("file", sorted(MODELS))
def test_a_message_refuses_what_it_does_not_know(file: str) -> None:
    value = {**json.loads(text(file)), "unheard_of": 1}
    with pytest.raises(ValueError, match="unheard_of"):
        MODELS[file].model_validate_json(json.dumps(value))

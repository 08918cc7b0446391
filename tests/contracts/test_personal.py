"""Nothing that names a person is written in clear: every text of every fact is judged."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

import contracts
from contracts.base import Actor, Metadata
from contracts.events.run import UserRef
from contracts.personal import ERASED, Personal
from contracts.registry import registered
from libs.eventstore.keyring import MARK
from libs.eventstore.mapper import Mapper
from libs.eventstore.people import MemoryPeople
from libs.eventstore.personal import places_of

M = TypeVar("M", bound=BaseModel)

EVENTS = {f"{name}/{version}": model for (name, version), model in registered().items()}

TELLING = {
    "actor",
    "by",
    "comment",
    "detail",
    "email",
    "mail",
    "message",
    "name",
    "note",
    "person",
    "reason",
    "recipient",
    "user",
    "who",
    "why",
}
"""Words of field names that may tell of a person."""

NOBODY = {
    ("TenantGroupCreated", "name"): "of a company",
    ("TenantCreated", "name"): "of a company's part",
    ("ProjectCreated", "name"): "of a project",
    ("DefinitionSynced", "name"): "of a workflow",
    ("ToolDeclaration", "name"): "of a tool",
    **dict.fromkeys(
        [
            ("AdmissionRefused", "reason"),
            ("AttemptCancelled", "reason"),
            ("DecisionWithdrawn", "reason"),
            ("EffectCancelled", "reason"),
            ("NoticeFailed", "message"),
            ("NoticeInDoubt", "reason"),
            ("NoticePutOff", "message"),
            ("RunFailed", "reason"),
            ("RunStepCancelled", "reason"),
            ("RunStepEscalated", "message"),
            ("RunStepFailed", "message"),
            ("RunStepRetrying", "message"),
            ("RunStepSkipped", "reason"),
            ("ScheduleRetired", "reason"),
            ("ScheduleSkipped", "detail"),
            ("SkippedTrigger", "reason"),
            ("WaitClosed", "reason"),
        ],
        "the product's own words, in which people are named by their ids",
    ),
    **dict.fromkeys(
        [
            ("AttemptFailed", "message"),
            ("EffectFailed", "message"),
            ("EffectInDoubt", "reason"),
            ("EffectProbed", "message"),
        ],
        "the product's own words, or what a model or a target said",
    ),
    **dict.fromkeys(
        [("RunCancelled", "reason"), ("RunSuspended", "reason"), ("UserErased", "reason")],
        "why somebody did it: what it is about is not known, and `audit erase` looks for names in it",
    ),
}
"""Texts whose name sounds like a person's, and why they are nobody's."""


def models(of: Any) -> Iterator[type[BaseModel]]:
    if isinstance(of, type) and issubclass(of, BaseModel):
        yield of
    for argument in get_args(of):
        yield from models(argument)


def within(model: type[BaseModel], seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """A model with all that its fields hold."""
    if model not in seen:
        seen.add(model)
        for field in model.model_fields.values():
            for each in models(field.annotation):
                within(each, seen)
    return seen


STORED: tuple[type[BaseModel], ...] = (*EVENTS.values(), Metadata)
ALL = sorted({each for model in STORED for each in within(model, set())}, key=lambda model: model.__name__)


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_a_text_that_may_tell_of_a_person_is_marked_or_judged(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        kinds = {field.annotation, *get_args(field.annotation)}
        if str not in kinds or TELLING.isdisjoint(name.split("_")):
            continue
        marked = any(isinstance(mark, Personal) for mark in field.metadata)
        judged = (model.__name__, name) in NOBODY
        assert marked != judged, f"{model.__name__}.{name}: mark it Personal, or say here why it is nobody's"


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.__name__)
def test_who_holds_a_person_is_followed_there(model: type[BaseModel]) -> None:
    """A model that reaches an actor or a user reference has places: `places_of` refuses where it could not follow."""
    reached = within(model, set())
    if reached & {Actor, UserRef}:
        assert places_of(model) is not None
    for each in reached:
        for name, field in each.model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, Personal) and mark.of != "stream":
                    assert hasattr(each, mark.of) or mark.of in each.model_fields, f"{each.__name__}.{name}"


def test_the_judgements_are_about_what_there_is() -> None:
    names = {model.__name__: model for model in ALL}
    for model, field in NOBODY:
        assert field in names[model].model_fields


@pytest.mark.parametrize("name", sorted(EVENTS))
async def test_a_fact_of_a_person_is_stored_without_their_words(name: str) -> None:
    golden = Path(contracts.__file__).parent / "golden/events" / f"{name.replace('/', '.v')}.json"
    person = uuid4()
    event = filled(EVENTS[name].model_validate_json(golden.read_text("utf-8")), person)
    metadata = Metadata(
        tenant_group=uuid4(),
        tenant=uuid4(),
        actor=Actor(kind="user", id=person, name="SECRET"),
        correlation=uuid4(),
        causation=uuid4(),
    )
    mapper = Mapper(people=MemoryPeople(destroyed=lambda: None))
    await mapper.people.know(mapper.persons(metadata, [(person, event)]))
    stored, kept = mapper.to_stored(event, person, 1), mapper.write_metadata(metadata)
    assert b"SECRET" not in stored.state
    assert "SECRET" not in kept
    assert (mapper.to_event(stored), mapper.read_metadata(kept)) == (event, metadata)
    assert mapper.to_stored(event, person, 1).state == stored.state, "the same fact is the same bytes"

    await mapper.people.destroy(person, metadata.tenant_group)
    read = mapper.to_event(stored).model_dump_json()
    assert "SECRET" not in read
    assert MARK not in read
    assert mapper.read_metadata(kept).actor.name == ERASED


def filled(value: M, person: UUID) -> M:
    """The value with everything that can be of a person being this one's, and their words SECRET."""
    changes: dict[str, Any] = {}
    for name, field in type(value).model_fields.items():
        held = getattr(value, name)
        for mark in field.metadata:
            if isinstance(mark, Personal):
                changes[name] = "SECRET"
                if mark.of in type(value).model_fields:
                    owner = Actor(kind="user", id=person, name="SECRET")
                    changes[mark.of] = owner if mark.of == "by" else person
        if name not in changes and isinstance(held, BaseModel):
            changes[name] = filled(held, person)
        elif name not in changes and isinstance(held, tuple):
            changes[name] = tuple(filled(each, person) if isinstance(each, BaseModel) else each for each in held)
    if isinstance(value, Actor):
        changes |= {"kind": "user", "id": person}
    return value.model_copy(update=changes)

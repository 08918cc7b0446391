"""Every state that facts can add up to comes back from a snapshot as it was, and goes on as it would have."""

import json
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import contracts
from contracts.base import Event
from contracts.registry import model_of
from libs.domain.categories import CATEGORIES
from libs.eventstore.snapshots import Kept, Snapshots

_GOLDEN: Final = Path(contracts.__file__).parent / "golden" / "events"


def _examples(category: str) -> list[Event]:
    """The example of every fact of a category, at its newest version."""
    found = {}
    for path in sorted(_GOLDEN.glob(f"{category}.*.json")):
        name, _, version = path.name.removesuffix(".json").rpartition(".v")
        model = model_of(name, int(version))
        assert model is not None
        found[name] = model.model_validate_json(path.read_bytes())
    return list(found.values())


@pytest.mark.parametrize("name", sorted(CATEGORIES))
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_what_any_facts_add_up_to_comes_back(name: str, data: st.DataObject) -> None:
    category: Any = CATEGORIES[name]
    examples = _examples(name)
    facts = tuple(data.draw(st.lists(st.sampled_from(examples), max_size=12)))
    done = data.draw(st.frozensets(st.tuples(st.uuids(), st.uuids()), max_size=3))
    kept = Kept(category.fold(facts), data.draw(st.none() | st.just("00-1-1-01")), done)

    snapshots = Snapshots(category)
    back: Kept[Any] = snapshots.read(snapshots.write(kept))

    assert back == kept
    further = data.draw(st.sampled_from(examples))
    assert category.evolve(back.state, further) == category.evolve(kept.state, further)


def test_defaults_are_not_written() -> None:
    """A run of hundreds of items is mostly what it was born with."""
    run = CATEGORIES["run"]
    written = json.loads(Snapshots(run).write(Kept(run.initial, done=frozenset({(UUID(int=1), UUID(int=2))}))))
    assert written == {"state": {}, "done": [[str(UUID(int=1)), str(UUID(int=2))]]}


def test_every_category_has_a_schema_of_its_own() -> None:
    assert len({Snapshots(category).schema for category in CATEGORIES.values()}) == len(CATEGORIES)

"""The scheduler counts states by facts; that table must say what the aggregates' own folds say."""

from dataclasses import replace
from typing import Any, Final, get_args

import pytest

from contracts.base import Event
from contracts.events.effect import EffectSettled
from contracts.events.run import RunParked
from contracts.registry import registered
from libs.domain import lifecycle
from libs.domain.categories import CATEGORIES
from minutebook.models.states import SettleVerdict
from services.dev.minimal_instance import minimal_instance
from services.scheduler.gauges import STATE_AFTER

COUNTED: Final = ("run", "decision", "effect")


def facts() -> dict[str, Event]:
    """A fact of every kind of the counted categories, as the table names kinds."""
    found: dict[str, Event] = {}
    for (type_, _), model in registered().items():
        if type_.partition(".")[0] not in COUNTED:
            continue
        plain: Any = minimal_instance(model.model_json_schema())
        if model is RunParked:
            for on in get_args(RunParked.model_fields["on"].annotation):
                found[f"{type_}.{on}"] = model.model_validate(plain | {"on": on})
        elif model is EffectSettled:
            for verdict in get_args(SettleVerdict):
                found[f"{type_}.{verdict}"] = model.model_validate(plain | {"verdict": verdict})
        else:
            found[type_] = model.model_validate(plain)
    return found


@pytest.mark.parametrize("kind", sorted(facts()))
def test_a_fact_leads_to_the_same_state_whatever_was_before(kind: str) -> None:
    category = CATEGORIES[kind.partition(".")[0]]
    for state in lifecycle.LIFECYCLES[category.name]:
        became = category.status(category.evolve(replace(category.initial, status=state), facts()[kind]))
        assert (category.name, became) == STATE_AFTER.get(kind, (category.name, state))


def test_no_kind_is_named_that_does_not_exist() -> None:
    assert set(STATE_AFTER) <= set(facts())

"""Event types by name and version. Names are written out, never derived from a module path."""

from collections.abc import Callable
from typing import TypeVar

from contracts.base import Event

E = TypeVar("E", bound=type[Event])

_MODELS: dict[tuple[str, int], type[Event]] = {}
_NAMES: dict[type[Event], tuple[str, int]] = {}


def event(name: str, version: int = 1) -> Callable[[E], E]:
    """Register a model as the event `<category>.<past participle>` of this version."""

    def register(model: E) -> E:
        if (name, version) in _MODELS:
            raise ValueError(f"event {name} v{version} is registered twice")
        _MODELS[name, version] = model
        _NAMES[model] = (name, version)
        return model

    return register


def name_of(model: type[Event]) -> tuple[str, int]:
    """Return (type, version) of a registered model.

    Raises:
        KeyError: the model was never registered.
    """
    return _NAMES[model]


def model_of(name: str, version: int) -> type[Event] | None:
    """Return the model, or None when this process does not know the event (a newer replica may)."""
    return _MODELS.get((name, version))


def registered() -> dict[tuple[str, int], type[Event]]:
    """Every registered event, for tests and documentation."""
    return dict(_MODELS)

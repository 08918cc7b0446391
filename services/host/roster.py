"""Which services there are and how each is built, imported when it is built."""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Final, cast, get_args

from contracts.envelope import Owner as ServiceName
from contracts.errors import Rejected
from libs.process import Service, Tools

Builder = Callable[[Tools], Service]

ALL: Final = "all"

ORDER: Final[tuple[ServiceName, ...]] = ("planner", "decision", "runner", "effects", "ingest", "scheduler", "api")
"""Owners first: the door opens last, when all that it asks is there."""

ANSWERING: Final[frozenset[ServiceName]] = frozenset({"planner", "decision"})
"""Services that the door asks. They stop after it, so that what it has let in is answered."""

assert set(ORDER) == set(get_args(ServiceName)), "the roster knows every service"


def _builder(name: ServiceName) -> Builder:
    def build(tools: Tools) -> Service:
        return cast(Service, import_module(f"services.{name}.app").build(tools))

    return build


BUILDERS: Final[Mapping[ServiceName, Builder]] = {name: _builder(name) for name in ORDER}


def chosen(names: Iterable[str]) -> tuple[ServiceName, ...]:
    """Return the named services, each once, in the order in which they start. `all` stands for every one.

    Raises:
        contracts.errors.Rejected: ``service.unknown``, there is none of a name.
    """
    wanted = set(names)
    if strange := sorted(wanted - {ALL, *ORDER}):
        raise Rejected(
            "service.unknown", f"there is no service {', '.join(strange)}; there are {', '.join(ORDER)}, and all"
        )
    return tuple(name for name in ORDER if name in wanted or ALL in wanted)

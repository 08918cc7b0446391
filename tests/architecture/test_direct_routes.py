"""Requests that are answered at the edge are meant for nobody else: the order of the routes has no say there."""

import pytest

from services.api.door import DoorRoute
from services.api.routes import ROUTERS, runs


@pytest.mark.parametrize("busy", runs.BUSIEST, ids=lambda route: route.path)
def test_no_other_route_takes_what_is_answered_at_the_edge(busy: DoorRoute) -> None:
    path = busy.path.replace("{definition_id}", "release-note")
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, DoorRoute)]
    taking = [r for r in routes if r.path_regex.match(path) and (r.methods or set()) & (busy.methods or set())]
    assert taking == [busy]

"""Whose call is next: the limits hold, each server has its turn, and an effect waits once."""

from collections import Counter
from typing import Final
from uuid import UUID

from structlog.testing import capture_logs

from libs.domain.effect import State
from libs.telemetry.metrics import REGISTRY
from services.effects.gates import Gates, Limits
from services.effects.holding import Holding
from services.effects.turns import Turn, Turns

_GROUP: Final = UUID(int=7)


def turn(number: int, system: str = "github", *, group: UUID = _GROUP, arm: int = 0) -> Turn:
    return Turn(UUID(int=number), 1, group, State(status="declared", system=system), None, arm)


def names(turns: list[Turn]) -> list[int]:
    return [each.effect_id.int for each in turns]


def test_each_server_gets_its_calls_and_no_more() -> None:
    turns = Turns(gates=Gates(), calls_max=10, calls_per_server_max=2)
    for number in range(5):
        turns.wait(turn(number))
    turns.wait(turn(9, "jira"))
    assert names(turns.take({})) == [0, 9, 1]
    assert names(turns.take({(_GROUP, "github"): 1, (_GROUP, "jira"): 1})) == [2]


def test_all_calls_together_are_limited_too_and_servers_take_turns() -> None:
    turns = Turns(gates=Gates(), calls_max=3, calls_per_server_max=3)
    for number in range(4):
        turns.wait(turn(number, "slow"))
        turns.wait(turn(10 + number, "quick"))
    assert names(turns.take({})) == [0, 10, 1]
    under_way = Counter({(_GROUP, "slow"): 2})
    assert names(turns.take(under_way)) == [11]


def test_one_name_in_two_groups_is_two_servers() -> None:
    turns = Turns(gates=Gates(), calls_max=10, calls_per_server_max=1)
    turns.wait(turn(1))
    turns.wait(turn(2, group=UUID(int=8)))
    assert names(turns.take({})) == [1, 2]


def test_what_waits_keeps_its_place_and_its_latest_arm() -> None:
    turns = Turns(gates=Gates(), calls_max=10, calls_per_server_max=10)
    for each in (turn(1, arm=2), turn(2), turn(1, arm=3), turn(1, arm=1)):
        turns.wait(each)
    taken = turns.take({})
    assert names(taken) == [1, 2]
    assert taken[0].arm == 3
    assert turns.take({}) == []


def test_no_more_wait_than_there_is_room_for() -> None:
    turns = Turns(gates=Gates(), calls_max=1, calls_per_server_max=1, waiting_max=2)
    for number in range(3):
        turns.wait(turn(number))
    assert names(turns.take({})) == [0]
    turns.wait(turn(3))
    turns.wait(turn(4))
    assert [names(turns.take({})) for _ in range(3)] == [[1], [3], []]


def test_what_is_given_up_waits_no_more() -> None:
    turns = Turns(gates=Gates(), calls_max=1, calls_per_server_max=1, waiting_max=2)
    for each in (turn(1), turn(2, "jira")):
        turns.wait(each)
    assert names(turns.give_up()) == [1, 2]
    assert turns.take({}) == []
    turns.wait(turn(3))
    assert names(turns.take({})) == [3]


def test_what_waits_is_known_by_what_holds_it_back_and_said_once() -> None:
    gates = Gates(clock=lambda: 0.0)
    gates.of((_GROUP, "rated"), Limits(rate_calls=1, rate_seconds=60.0))
    gates.of((_GROUP, "away"), Limits(breaker_failures=1)).note(sent=False)
    turns = Turns(gates=gates, calls_max=10, calls_per_server_max=1)
    for number, system in enumerate(("rated", "rated", "rated", "away", "busy", "busy")):
        turns.wait(turn(number, system))
    under_way = {each.server: 1 for each in turns.take({})}
    under_way.pop((_GROUP, "rated"))
    held = turns.held(under_way)
    assert held == {
        (_GROUP, "rated"): ("rate", 2),
        (_GROUP, "away"): ("breaker", 1),
        (_GROUP, "busy"): ("calls", 1),
    }
    holding = Holding()
    with capture_logs() as logs:
        holding.note(held)
        holding.note(held)
    assert {(log["system"], log["held_by"], log["effects"]) for log in logs} == {
        ("rated", "rate", 2),
        ("away", "breaker", 1),
    }
    assert len(logs) == 2
    assert REGISTRY.get_sample_value("minutebook_effects_waiting", {"held_by": "rate"}) == 2
    with capture_logs() as logs:
        holding.note({})
        holding.note(held)
    assert len(logs) == 2, "a queue that had emptied is held back anew"
    assert REGISTRY.get_sample_value("minutebook_effects_waiting", {"held_by": "breaker"}) == 1

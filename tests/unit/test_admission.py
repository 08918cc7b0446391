"""Given facts, when runs ask or are over, then who works under a concurrency key."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import UUID

import pytest

from contracts.events.admission import (
    AdmissionGranted,
    AdmissionQueued,
    AdmissionRefused,
    AdmissionReturned,
    AdmissionSuperseded,
)
from libs.domain import lifecycle
from libs.domain.admission import CATEGORY, Settle, State, Wanted, decide
from libs.domain.core import NOTHING, Decided

NOW = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)


def run(number: int) -> UUID:
    return UUID(int=number)


def wanted(number: int, **changes: Any) -> Wanted:
    """Run `number` asks, `number` seconds after the first."""
    fields: dict[str, Any] = {
        "run_id": run(number),
        "at": NOW + timedelta(seconds=number),
        "definition_id": "trial",
        "key": "CORE-1",
        "limit": 1,
        "mode": "queue",
        "max_queued": 1_000,
    }
    return Wanted(**{**fields, **changes})


def settled(state: State, *asking: Wanted, over: tuple[int, ...] = (), **rest: Any) -> tuple[State, Decided]:
    command = Settle(wanted=asking, over=frozenset(map(run, over)), **rest)
    decided = decide(command, state, NOW)
    after = CATEGORY.fold(decided.events, state)
    if after.status != state.status:
        assert after.status in lifecycle.ADMISSION[state.status]
    return after, decided


def numbers(runs: tuple[UUID, ...]) -> list[int]:
    return [run_id.int for run_id in runs]


def kinds(decided: Decided) -> list[tuple[str, int]]:
    return [(type(event).__name__.removeprefix("Admission"), event.run_id.int) for event in decided.events]  # type: ignore[attr-defined]


def test_the_first_works_and_the_others_wait_in_the_order_of_their_asking() -> None:
    state, decided = settled(State(), wanted(3), wanted(1), wanted(2))
    assert (numbers(state.holders), numbers(state.queued), state.status) == ([1], [2, 3], "busy")
    assert kinds(decided) == [("Granted", 1), ("Queued", 2), ("Queued", 3)]
    assert {(guard.category, guard.stream_id.int, guard.states) for guard in decided.guards} == {
        ("run", number, lifecycle.RUN_OPEN) for number in (1, 2, 3)
    }
    assert [state.place(run(number)) for number in (1, 2, 3)] == [None, 1, 2]


def test_a_place_that_is_given_back_goes_to_who_waits_longest_before_who_asks_now() -> None:
    state, _ = settled(State(), wanted(1), wanted(2), wanted(3))
    state, decided = settled(state, wanted(4), over=(1,))
    assert kinds(decided) == [("Returned", 1), ("Granted", 2), ("Queued", 4)]
    assert (numbers(state.holders), numbers(state.queued)) == ([2], [3, 4])
    returned = {guard.stream_id.int: guard.states for guard in decided.guards}
    assert returned == {1: lifecycle.RUN_OVER, 4: lifecycle.RUN_OPEN}
    state, _ = settled(state, over=(2, 3, 4))
    assert state.status == "idle"


def test_what_is_known_already_is_no_news() -> None:
    state, _ = settled(State(), wanted(1), wanted(2))
    assert decide(Settle(wanted=(wanted(1), wanted(2))), state, NOW) == NOTHING
    assert decide(Settle(over=frozenset({run(9)})), state, NOW) == NOTHING
    assert decide(Settle(), State(), NOW) == NOTHING


def test_a_run_that_is_over_before_its_turn_leaves_the_queue() -> None:
    state, _ = settled(State(), wanted(1), wanted(2), wanted(3))
    state, decided = settled(state, over=(2,))
    assert kinds(decided) == [("Returned", 2)]
    assert (numbers(state.holders), numbers(state.queued)) == ([1], [3])


def test_no_more_wait_than_may() -> None:
    state, decided = settled(State(), *(wanted(number, max_queued=2) for number in range(1, 6)))
    assert kinds(decided) == [("Granted", 1), ("Queued", 2), ("Queued", 3), ("Refused", 4), ("Refused", 5)]
    refused = decided.events[-1]
    assert isinstance(refused, AdmissionRefused)
    assert "max_queued" in refused.reason
    assert numbers(state.queued) == [2, 3]


def test_who_was_turned_away_gets_nothing_from_a_message_that_comes_again() -> None:
    state, _ = settled(State(), *(wanted(number, max_queued=1) for number in range(1, 4)))
    state, _ = settled(state, over=(1, 2))
    assert decide(Settle(wanted=(wanted(3),)), state, NOW) == NOTHING
    state, _ = settled(State(), wanted(1, mode="coalesce"), wanted(2, mode="coalesce"))
    state, _ = settled(state, over=(2,))
    assert decide(Settle(wanted=(wanted(1, mode="coalesce"),)), state, NOW) == NOTHING


def test_of_rapid_starts_that_coalesce_the_newest_waits_and_none_that_works_gives_way() -> None:
    state, decided = settled(State(), wanted(1, mode="coalesce"))
    for number in range(2, 6):
        state, decided = settled(state, wanted(number, mode="coalesce"))
        assert (numbers(state.holders), numbers(state.queued)) == ([1], [number])
    superseded = decided.events[-1]
    assert superseded == AdmissionSuperseded(at=NOW, run_id=run(4), by=run(5))
    state, decided = settled(state, over=(1,))
    assert numbers(state.holders) == [5]


def test_of_starts_that_come_at_once_and_coalesce_the_newest_works_and_supersedes_the_others() -> None:
    state, decided = settled(State(), *(wanted(number, mode="coalesce") for number in (2, 5, 1, 4, 3)))
    assert kinds(decided) == [
        ("Granted", 5),
        ("Superseded", 1),
        ("Superseded", 2),
        ("Superseded", 3),
        ("Superseded", 4),
    ]
    assert (numbers(state.holders), numbers(state.queued)) == ([5], [])
    state, decided = settled(State(), *(wanted(number, mode="coalesce", limit=3) for number in range(1, 6)))
    assert numbers(state.holders) == [3, 4, 5]


def test_a_start_whose_message_comes_late_does_not_supersede_a_newer_one() -> None:
    state, _ = settled(State(), wanted(1, mode="coalesce"))
    state, _ = settled(state, wanted(5, mode="coalesce"))
    asked_at = {run(5): NOW + timedelta(seconds=5)}
    state, decided = settled(state, wanted(3, mode="coalesce"), asked_at=asked_at)
    assert decided.events == (AdmissionSuperseded(at=NOW, run_id=run(3), by=run(5)),)
    assert numbers(state.queued) == [5]


def test_a_queue_whose_definition_begins_to_coalesce_keeps_its_newest() -> None:
    state, _ = settled(State(), *(wanted(number) for number in range(1, 5)))
    state, decided = settled(state, wanted(5, mode="coalesce"))
    assert kinds(decided) == [("Queued", 5), ("Superseded", 2), ("Superseded", 3), ("Superseded", 4)]
    assert (numbers(state.holders), numbers(state.queued)) == ([1], [5])


def test_a_run_that_works_already_is_let_in_whatever_the_limit_says() -> None:
    state, _ = settled(State(), wanted(1), wanted(2), wanted(3))
    state, decided = settled(state, wanted(4, working=True))
    assert kinds(decided) == [("Granted", 4)]
    state, decided = settled(state, over=(1,))
    assert kinds(decided) == [("Returned", 1)], "two worked where one may: the next begins when both are over"
    state, decided = settled(state, wanted(2, working=True))
    assert (numbers(state.holders), numbers(state.queued)) == ([4, 2], [3])


def test_a_limit_that_was_raised_lets_more_in_and_one_that_was_lowered_waits() -> None:
    state, _ = settled(State(), wanted(1), wanted(2), wanted(3))
    state, _ = settled(state, wanted(4, limit=3))
    assert (numbers(state.holders), numbers(state.queued)) == ([1, 2, 3], [4])
    state, _ = settled(state, wanted(5, limit=1), over=(1,))
    assert (numbers(state.holders), numbers(state.queued)) == ([2, 3, 4], [5])
    state, _ = settled(state, over=(2, 3))
    assert (numbers(state.holders), numbers(state.queued)) == ([4], [5])


@pytest.mark.parametrize("limit", [1, 3])
def test_in_any_order_of_asking_and_ending_no_more_work_than_may_and_none_is_forgotten(limit: int) -> None:
    random = Random(limit)
    for _ in range(200):
        state, asked, ended = State(), list[int](), set[int]()
        left = list(range(1, 30))
        while left or set(asked) - ended:
            free = [number for number in asked if number not in ended]
            if left and (not free or random.random() < 0.5):
                batch = [left.pop(0) for _ in range(min(len(left), random.randint(1, 4)))]
                asked += batch
                state, _ = settled(state, *(wanted(number, limit=limit) for number in batch))
            else:
                number = random.choice(free)
                ended.add(number)
                state, _ = settled(state, over=(number,))
            assert len(state.holders) <= limit
            assert {*numbers(state.holders), *numbers(state.queued)} == set(asked) - ended
            assert len(state.holders) == min(limit, len(set(asked) - ended))
        assert state.status == "idle"


def test_facts_fold_without_judging() -> None:
    granted = AdmissionGranted(at=NOW, run_id=run(1), definition_id="trial", key="k", limit=2)
    queued = AdmissionQueued(at=NOW, run_id=run(2), definition_id="trial", key="k", limit=2, mode="queue")
    state = CATEGORY.fold((granted, queued, AdmissionReturned(at=NOW, run_id=run(1))))
    assert (state.holders, state.queued, state.definition_id, state.key, state.limit) == (
        (),
        (run(2),),
        "trial",
        "k",
        2,
    )
    assert CATEGORY.columns(state) == {"definition_id": "trial", "key": "k", "holders": 0, "queued": 1}

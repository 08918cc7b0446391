"""A run under a concurrency key: asks, is held, starts in its turn, and gives its place back."""

from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts.errors import Rejected
from contracts.events import admission as a
from contracts.events.run import Trigger
from libs.domain import admission, run
from libs.language.model import Concurrency
from tests.support.runs import DEVELOPER, GROUP, START, World, agent, bundle_of, review

ONE = Concurrency(key="{{context.repo}}", limit=1, max_queued=1)
FACTS = {"definition_id": "trial", "key": "x", "limit": 1}


def world(concurrency: Concurrency = ONE, **changes: object) -> World:
    return World(bundle_of(agent("a"), review("ok"), concurrency=concurrency, **changes))


def granted(run_id: UUID) -> a.AdmissionGranted:
    return a.AdmissionGranted(at=START, run_id=run_id, **FACTS)


def queued(run_id: UUID) -> a.AdmissionQueued:
    return a.AdmissionQueued(at=START, run_id=run_id, mode="queue", **FACTS)


def started() -> World:
    asking = world().start({"repo": "x"})
    asking.verdict = granted(asking.run_id)
    return asking.advance()


def test_a_run_asks_for_its_key_and_starts_when_it_is_granted() -> None:
    asking = world().start({"repo": "x"})
    assert asking.types == ["Created", "AdmissionRequested"]
    assert asking.state.admission is not None
    assert (asking.state.admission.key, asking.state.admission.working) == ("x", False)
    assert asking.advance().types == ["Created", "AdmissionRequested"]
    assert run.CATEGORY.wake_at(asking.state, asking.now) is not None
    asking.verdict = granted(asking.run_id)
    assert asking.advance().types[-3:] == ["Started", "StageEntered", "StepQueued"]


def test_a_held_run_costs_nothing_and_starts_in_its_turn() -> None:
    asking = world().start({"repo": "x"})
    asking.verdict = queued(asking.run_id)
    assert asking.advance().types[-1] == "Held"
    assert (asking.state.status, asking.state.held) == ("created", True)
    assert run.CATEGORY.wake_at(asking.state, asking.now) is None
    assert asking.advance().types[-1] == "Held"
    asking.verdict = granted(asking.run_id)
    assert asking.advance().state.status == "running"


def test_a_newer_start_takes_its_place() -> None:
    asking, newer = world().start({"repo": "x"}), uuid4()
    asking.verdict = a.AdmissionSuperseded(at=START, run_id=asking.run_id, by=newer)
    asking.advance()
    assert (asking.state.status, asking.state.superseded_by) == ("superseded", newer)
    assert asking.types[-1] == "Superseded"


def test_a_full_queue_ends_it_and_says_so() -> None:
    asking = world().start({"repo": "x"})
    asking.verdict = a.AdmissionRefused(at=START, run_id=asking.run_id, reason="1 runs wait")
    asking.advance()
    assert (asking.state.status, asking.state.reason) == ("cancelled", "admission.full: 1 runs wait")


def test_a_start_is_refused_when_the_queue_is_seen_to_be_full() -> None:
    full = admission.State(status="busy", holders=(uuid4(),), queued=(uuid4(),))
    asking = world()
    command: Any = run.Create(
        run_id=asking.run_id,
        definition_id="trial",
        principal=DEVELOPER,
        evidence=run.Evidence(tenant_group=GROUP, bundle=asking.bundle, key=full),
        bundle=asking.keep({}),
        context={"repo": "x"},
        trigger=Trigger(kind="manual"),
        project_id=None,
    )
    with pytest.raises(Rejected) as error:
        run.decide(command, asking.state, asking.now)
    assert (error.value.status, error.value.code) == (429, "admission.full")


def test_a_key_that_the_context_does_not_fill_is_missing_context() -> None:
    with pytest.raises(Rejected) as error:
        world().start({})
    assert (error.value.status, error.value.code) == (422, "run.context_missing")
    assert [item.path for item in error.value.errors] == ["context.repo"]


@pytest.mark.parametrize("outcome", ["approve", "reject", "cancel"])
def test_the_place_is_given_back_with_the_end(outcome: str) -> None:
    ended = started().succeed("a", {}).answer("ok", outcome)
    assert ended.types[-1] == "AdmissionReturned"
    assert ended.state.admission is None


def test_it_is_given_back_by_a_cancel_also_while_held() -> None:
    held = world().start({"repo": "x"})
    held.verdict = queued(held.run_id)
    held.advance().command(run.Cancel(principal=DEVELOPER, reason="enough"))
    assert held.types[-2:] == ["Cancelled", "AdmissionReturned"]


def test_a_suspended_run_keeps_its_place() -> None:
    suspended = started().suspend()
    assert suspended.state.admission is not None
    assert suspended.resume().state.status == "running"


def test_a_run_that_was_suspended_before_its_turn_waits_for_it() -> None:
    held = world().start({"repo": "x"})
    held.verdict = queued(held.run_id)
    held.advance().suspend()
    with pytest.raises(Rejected) as error:
        held.resume()
    assert (error.value.status, error.value.code) == (409, "run.held")
    held.verdict = granted(held.run_id)
    assert held.resume().types[-3:] == ["Resumed", "StageEntered", "StepQueued"]


def test_a_failed_run_that_goes_on_is_counted_whatever_the_limit() -> None:
    failed = world(on_failure={"timeout": "fail"}).start({"repo": "x"})
    failed.verdict = granted(failed.run_id)
    failed.advance().fail("a", "timeout")
    assert failed.types[-2:] == ["Failed", "AdmissionReturned"]
    failed.verdict = None
    failed.retry("a")
    assert failed.types[-3:] == ["Resumed", "AdmissionRequested", "StepQueued"]
    assert failed.state.admission is not None
    assert failed.state.admission.working
    failed.succeed("a", {}).answer("ok", "approve")
    assert failed.types[-1] == "AdmissionReturned"

"""The shipped definitions, each through five scenarios, over HTTP alone; only the model is scripted."""

import json
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.stack import DEFINITIONS, Dev, eventually, scripted_answers, story

DANA = "dana@example.com"
PRIYA = "priya@example.com"
LENA = "lena@example.com"
OLGA = "olga@elsewhere.example"


@dataclass(frozen=True)
class Shipped:
    """A definition as its people use it. `subject` is the context key that tells one run's matter from another's."""

    id: str
    by: str
    subject: str
    tool: str
    first_decision: str
    role_holder: str
    without: str | None = None

    def context(self, subject: str) -> dict[str, Any]:
        file = DEFINITIONS / "workflows" / self.id / "demo/context.json"
        plain = json.loads(file.read_text()) if file.exists() else {"summary": "Move a booking to a later sailing"}
        return {**plain, self.subject: subject}

    def start(self, dev: Dev, subject: str) -> str:
        """Start a run the way it usually begins, and return its id."""
        if self.id == "core-dev":
            response = dev.deliver(story(subject))
            assert response.status_code == 202, response.text
            return dev.started(subject)
        body = {"context": self.context(subject), "project_id": "core"}
        response = dev.call("POST", f"/definitions/{self.id}/runs", by=self.by, json=body)
        assert response.status_code in (201, 202), response.text
        run_id: str = response.json()["run_id"]
        return run_id

    def written(self, dev: Dev, run_id: str, subject: str) -> list[dict[str, Any]]:
        """The calls of the run at its target, each of which must be about its own matter."""
        calls = dev.calls(run_id)
        for call in calls:
            assert call["tool"] == self.tool
            told = json.dumps([call["arguments"], call["meta"]["minutebook/idempotency-key"]])
            assert subject in told
        return calls


SHIPPED = (
    Shipped("core-dev", DANA, "jira_key", "create_pull_request", "po_review", PRIYA),
    Shipped("growth-proposal", PRIYA, "opportunity_id", "create_record", "presales_review", PRIYA),
    Shipped("pmo-review", PRIYA, "project_key", "createJiraIssue", "pmo_decision", PRIYA, without="client"),
)


@pytest.fixture(params=SHIPPED, ids=lambda shipped: shipped.id)
def shipped(request: pytest.FixtureRequest) -> Shipped:
    found: Shipped = request.param
    return found


@pytest.fixture
def subject() -> str:
    """A key that no other test has."""
    return f"FERRY-{secrets.randbelow(10**9)}"


def approvals(shipped: Shipped) -> list[dict[str, Any]]:
    """The people of the script, approving at once."""
    people = {answer["step"]: answer["user"] for answer in scripted_answers(shipped.id)}
    return [{"step": step, "round": 1, "user": user, "outcome": "approve"} for step, user in people.items()]


def effects(run: dict[str, Any]) -> list[str]:
    return [effect["state"] for effect in run["effects"]]


def test_the_happy_path_writes_what_was_approved_once(dev: Dev, shipped: Shipped, subject: str) -> None:
    run_id = shipped.start(dev, subject)
    run = dev.play(run_id, scripted_answers(shipped.id))
    assert (run["state"], run["outcome"]) == ("completed", "succeeded"), run["reason"]
    calls = shipped.written(dev, run_id, subject)
    assert effects(run) == ["succeeded"] * len(calls)
    assert len({call["meta"]["minutebook/idempotency-key"] for call in calls}) == len(calls) > 0
    revised = [value for answer in scripted_answers(shipped.id) for value in answer.get("revise", {}).values()]
    for value in revised:
        assert value in json.dumps(calls, ensure_ascii=False), "what the person made of it is what was sent"
    assert {step["key"]: step["round"] for step in run["steps"]}[shipped.first_decision] == 2, "changes were asked for"


def test_a_rejection_ends_it_and_writes_nothing(dev: Dev, shipped: Shipped, subject: str) -> None:
    run_id = shipped.start(dev, subject)
    decision_id = dev.waiting(run_id, shipped.first_decision)["decision_id"]
    answer = dev.decide(decision_id, "reject", by=shipped.role_holder, comment="Not this quarter.")
    assert answer.status_code == 200, answer.text
    run = dev.ended(run_id)
    assert (run["state"], run["outcome"]) == ("completed", "rejected")
    assert (dev.calls(run_id), run["effects"]) == ([], [])


def test_a_start_without_its_context_creates_nothing(dev: Dev, shipped: Shipped) -> None:
    before = dev.query("select count(*) from run_heads where definition_id = $1", shipped.id)[0]["count"]
    body: dict[str, Any] = {"context": {}, "project_id": "core"}
    if shipped.without:
        body["variant"] = shipped.without
    response = dev.call("POST", f"/definitions/{shipped.id}/runs", by=shipped.by, json=body)
    assert response.status_code == 422, response.text
    problem = response.json()
    assert problem["code"] == "run.context_missing"
    assert f"context.{shipped.subject}" in {error["path"] for error in problem["errors"]}
    after = dev.query("select count(*) from run_heads where definition_id = $1", shipped.id)[0]["count"]
    assert after == before


def test_a_target_that_is_away_is_tried_again_then_waits_for_a_person(dev: Dev, shipped: Shipped, subject: str) -> None:
    run_id = shipped.start(dev, subject)
    dev.target_fails({"kind": "away"})
    try:
        dev.answer(run_id, approvals(shipped))
        run = dev.ended(run_id)
    finally:
        dev.target_fails()
    assert run["state"] == "suspended"
    assert run["reason"].startswith("attempts_exhausted")
    assert run["failure_class"] == "connector_unavailable"
    assert dev.calls(run_id) == []
    run = retried(dev, run_id)
    assert (run["state"], run["outcome"]) == ("completed", "succeeded"), run["reason"]
    calls = shipped.written(dev, run_id, subject)
    assert effects(run) == ["succeeded"] * len(calls)
    assert len({call["meta"]["minutebook/idempotency-key"] for call in calls}) == len(calls) > 0


def retried(dev: Dev, run_id: str) -> Any:
    """Have every step that failed tried once more, until the run has come to its end."""

    def step() -> Any:
        run = dev.ended(run_id)
        if run["state"] != "suspended":
            return run
        failed = [s["key"] for s in run["steps"] if s["state"] == "failed"]
        for key in failed:
            answer = dev.call("POST", f"/runs/{run_id}/steps/{key}/retry", by=LENA, json={})
            assert answer.status_code in (200, 409), answer.text
        return None

    return eventually("the end of a run that is retried", step)


def test_runs_side_by_side_do_not_see_each_other(dev: Dev, shipped: Shipped) -> None:
    subjects = [f"FERRY-{secrets.randbelow(10**9)}" for _ in range(4)]
    with ThreadPoolExecutor(len(subjects)) as threads:
        ids = list(threads.map(lambda own: shipped.start(dev, own), subjects))
        runs = list(threads.map(lambda run_id: dev.play(run_id, approvals(shipped)), ids))
    for own, run_id, run in zip(subjects, ids, runs, strict=True):
        assert (run["state"], run["outcome"]) == ("completed", "succeeded"), run["reason"]
        calls = shipped.written(dev, run_id, own)
        others = set(subjects) - {own}
        assert calls
        assert not any(other in json.dumps(calls) for other in others)
        prompts = dev.query(
            "select convert_from(b.content, 'utf8') as request from attempt_heads a"
            " join workflow_history h on h.stream_id = a.stream_id and h.version = 1"
            " join blobs b on b.digest = decode(h.payload->'request'->>'digest', 'hex') where a.run_id = $1",
            run_id,
        )
        assert prompts
        assert all(own in row["request"] for row in prompts)
        assert not any(other in row["request"] for row in prompts for other in others)
        assert dev.call("GET", f"/runs/{run_id}", by=OLGA).status_code == 404

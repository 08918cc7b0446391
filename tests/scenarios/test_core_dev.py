"""The shipped workflow over HTTP alone: a story comes in by webhook, people answer, one pull request is opened."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.support.stack import Dev, scripted_answers, story

DANA = "dana@example.com"
PRIYA = "priya@example.com"
LENA = "lena@example.com"
GUS = "gus@example.com"
OLGA = "olga@elsewhere.example"


def key() -> str:
    """A key of an issue that no other test has."""
    return f"FERRY-{secrets.randbelow(10**9)}"


def delivered(dev: Dev, jira_key: str) -> str:
    """Deliver a story and return the run that it started."""
    response = dev.deliver(story(jira_key))
    assert response.status_code == 202, response.text
    return dev.started(jira_key)


def problem(response: Any, status: int) -> dict[str, Any]:
    """The problem that was answered with this status."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    return found


def test_a_story_becomes_one_pull_request(dev: Dev) -> None:
    jira_key, trace = key(), secrets.token_hex(16)
    body = story(jira_key)
    first = dev.deliver(body, traceparent=f"00-{trace}-{secrets.token_hex(8)}-01")
    assert first.status_code == 202, first.text
    assert first.json()["status"] == "accepted"
    assert first.json()["event_id"]
    run = dev.play(dev.started(jira_key))
    again = dev.deliver(body)
    assert (again.status_code, again.json()) == (200, {"status": "duplicate"})
    assert dev.runs_of(jira_key) == [run["run_id"]]

    assert (run["state"], run["outcome"], run["project_id"]) == ("completed", "succeeded", "core")
    assert {step["state"] for step in run["steps"]} == {"succeeded"}
    (effect,) = run["effects"]
    assert (effect["key"], effect["state"]) == (f"pull_request:{jira_key}", "succeeded")
    (call,) = dev.calls(run["run_id"])
    assert call["tool"] == "create_pull_request"
    assert call["arguments"]["title"] == scripted_answers()[-1]["revise"]["pull_request.title"]
    assert call["arguments"]["owner"] == "harbourline"
    assert effect["reference"].endswith(f"/pull/{call['number']}")
    assert jira_key in call["meta"]["minutebook/idempotency-key"]
    assert run["run_id"] in call["meta"]["minutebook/idempotency-key"]
    assert call["meta"]["traceparent"].split("-")[1] == trace
    assert_one_trace(dev, run["run_id"], trace)


def assert_one_trace(dev: Dev, run_id: str, trace: str) -> None:
    """Everything that was recorded for the run belongs to the trace that began it, whoever caused it."""
    rows = dev.query(
        "select category, type, metadata->>'traceparent' as traceparent from workflow_history"
        " where metadata->>'correlation' = $1",
        run_id,
    )
    assert {row["category"] for row in rows} == {"run", "attempt", "decision", "effect"}
    strange = [(row["type"], row["traceparent"]) for row in rows if trace not in (row["traceparent"] or "")]
    assert strange == []


def test_twenty_deliveries_at_once_start_one_run(dev: Dev) -> None:
    jira_key = key()
    body = story(jira_key)
    with ThreadPoolExecutor(20) as threads:
        answers = list(threads.map(lambda _: dev.deliver(body), range(20)))
    statuses = [answer.status_code for answer in answers]
    assert sorted(statuses) == [*[200] * 19, 202]
    assert {answer.json()["status"] for answer in answers if answer.status_code == 200} == {"duplicate"}
    run_id = dev.started(jira_key)
    dev.waiting(run_id, "po_review")
    assert dev.runs_of(jira_key) == [run_id]


def test_what_is_not_a_delivery_stores_nothing(dev: Dev) -> None:
    jira_key = key()
    body = story(jira_key)
    forged = problem(dev.deliver(body, secret="a guess"), 401)
    assert forged["code"] == "webhook.signature"
    problem(dev.call("POST", "/api/public/workflows/events/jira", content=body), 401)
    problem(dev.deliver(body, source="elsewhere"), 404)
    problem(dev.deliver(b'{"padding": "%s"}' % (b"x" * (10 << 20))), 413)
    problem(dev.deliver(body.replace(b"{", b"[", 1)), 400)
    assert dev.query("select 1 from deliveries where keys->>'jira_key' = $1", jira_key) == []
    assert dev.query("select 1 from workflow_history where payload::text like $1", f"%{jira_key}%") == []
    assert dev.deliver(body).status_code == 202, "none of that was taken for the delivery itself"


def test_the_wrong_people_decide_and_see_nothing(dev: Dev) -> None:
    run_id = delivered(dev, key())
    decision_id = dev.waiting(run_id, "po_review")["decision_id"]

    refused = problem(dev.decide(decision_id, "approve", by=DANA), 403)
    assert refused["code"] == "decision.not_yours"
    problem(dev.decide(decision_id, "approve", by=LENA), 403)  # an administrator, but not a product owner

    objects = [
        f"/runs/{run_id}",
        f"/runs/{run_id}/history",
        f"/runs/{run_id}/artifacts/story_analysis",
        f"/decisions/{decision_id}",
    ]
    acts = [
        f"/runs/{run_id}/cancel",
        f"/runs/{run_id}/suspend",
        f"/runs/{run_id}/resume",
        f"/runs/{run_id}/steps/story_analysis/retry",
        f"/decisions/{decision_id}/approve",
    ]
    for stranger in (OLGA, GUS):
        for path in objects:
            problem(dev.call("GET", path, by=stranger), 404)
        for path in acts:
            problem(dev.call("POST", path, by=stranger, json={}), 404)
        for listing in ("/runs", "/inbox", "/effects"):
            assert dev.get(listing, by=stranger)["items"] == []
    for path in objects:
        problem(dev.call("GET", path), 401)
        problem(dev.call("GET", path, headers={"authorization": "Bearer mbt_guessed"}), 401)
    for path in acts:
        problem(dev.call("POST", path, json={}), 401)

    assert dev.run(run_id)["state"] == "waiting_decision"
    assert dev.decide(decision_id, "approve", by=PRIYA).status_code == 200


def test_a_decision_is_answered_once(dev: Dev) -> None:
    run_id = delivered(dev, key())
    decision_id = dev.waiting(run_id, "po_review")["decision_id"]
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda o: dev.decide(decision_id, o, by=PRIYA), ("approve", "request_changes")))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    late = problem(dev.decide(decision_id, "reject", by=PRIYA), 409)
    recorded = dev.get(f"/decisions/{decision_id}")["answer"]
    assert late["code"] == "decision.answered"
    assert PRIYA in late["detail"]
    assert recorded["at"][:19] in f"{late['detail']} {late['extra']}"
    (accepted,) = [answer for answer in answers if answer.status_code == 200]
    assert recorded["outcome"] == accepted.json()["outcome"]
    assert recorded["by"]["name"] == PRIYA


def test_a_start_without_what_the_workflow_needs(dev: Dev) -> None:
    found = problem(
        dev.call("POST", "/definitions/core-dev/runs", by=DANA, json={"context": {}, "project_id": "core"}), 422
    )
    assert "context.jira_key" in {error["path"] for error in found["errors"]}
    assert "context.jira_key" in found["detail"]
    problem(dev.call("POST", "/definitions/core-dev/runs", json={"context": {}}), 401)
    problem(dev.call("POST", "/definitions/core-dev/runs", by=PRIYA, json={"context": {"jira_key": "A-1"}}), 403)
    problem(dev.call("POST", "/definitions/core-dev/runs", by=OLGA, json={"context": {"jira_key": "A-1"}}), 404)
    runs = dev.get("/runs", definition="core-dev", limit=200)["items"]
    assert {run["initiated_by"]["email"] for run in runs} <= {"workflows@example.com"}, "only webhooks started some"


def test_the_history_cannot_be_changed(dev: Dev) -> None:
    delivered(dev, key())
    count = "select count(*) from workflow_history"
    changes = (
        "update workflow_history set payload = '{}'",
        "delete from workflow_history",
        "truncate workflow_history",
        "truncate workflow_history_0",
        "update workflow_history_0 set payload = '{}'",
        "delete from workflow_history_0",
    )
    before = dev.query(count)[0]["count"]
    for change in changes:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            dev.query(change, user="minutebook_app")
        with pytest.raises(asyncpg.RestrictViolationError, match="append-only"):
            dev.query(change)
    assert dev.query(count)[0]["count"] >= before
    assert dev.verified().ok


def test_the_file_of_the_stack_says_where_everything_is(dev: Dev) -> None:
    assert {"api_url", "tokens", "nats_url", "postgres_dsn", "sandbox_calls", "scripted_model_url"} <= dev.file.keys()
    assert {"admin@example.com", DANA, PRIYA, LENA, GUS, OLGA} == dev.file["tokens"].keys()
    assert dev.file["nats_url"].startswith("nats://")
    assert Path(dev.file["sandbox_calls"]).is_relative_to(dev.data_dir)
    assert (dev.data_dir / "dev.json").stat().st_mode & 0o077 == 0, "it holds tokens"
    for email in (DANA, PRIYA):
        assert dev.get("/me", by=email)["name"] == email
        assert dev.file["tokens"][email] in dev.said
    assert dev.file["api_url"] in dev.said

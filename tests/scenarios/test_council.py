"""A question, a quorum with four eyes, a delegate, and an approval that ends: as people have them at a command line."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tests.support.stack import Dev, command, eventually

COUNCIL: Final = Path(__file__).parent / "council"
DANA, PRIYA, LENA, GUS, ADA = (f"{name}@example.com" for name in ("dana", "priya", "lena", "gus", "admin"))


def said(dev: Dev, by: str, *args: str | Path) -> Any:
    """What a command answers as JSON; it must succeed."""
    done = command("--json", "--as", by, *args, cwd=dev.data_dir.parent)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def refused(dev: Dev, by: str, *args: str) -> str:
    """Why a command is refused."""
    done = command("--as", by, *args, cwd=dev.data_dir.parent)
    assert done.returncode == 1, done.stdout
    return done.stderr


def asked(dev: Dev, run_id: str, step: str, *, but: str = "") -> str:
    """The id of the decision that a run waits for at a step; `but` is one that it waited for before."""

    def look() -> str | None:
        waiting = [w for w in dev.run(run_id)["waiting_for"] if w["kind"] == "decision" and w["step"] == step]
        return next((str(w["decision_id"]) for w in waiting if w["decision_id"] != but), None)

    return eventually(f"{step} is asked", look)


def test_a_question_a_quorum_and_an_approval_that_ends(dev: Dev) -> None:
    assert said(dev, ADA, "definitions", "sync", COUNCIL)["synced"][0]["id"] == "rollout"
    run_id = said(dev, DANA, "runs", "start", "rollout", "--project", "core", "-c", "service=billing")["run_id"]

    window = asked(dev, run_id, "window")
    assert said(dev, PRIYA, "decisions", "show", window)["question"] == "When may billing be restarted?"
    assert "answer.window" in refused(dev, PRIYA, "decide", window, "answer", "--answer", '{"window": "never"}')
    said(dev, PRIYA, "decide", window, "answer", "--answer", '{"window": "sunday"}')

    # Nobody answers `note`, which times out with an answer of its own.
    go = asked(dev, run_id, "go")
    assert dev.get(f"/runs/{run_id}/artifacts/note")["proposed"] == {"answer": "nothing"}
    assert "not: window" in refused(dev, PRIYA, "decide", go, "approve"), "who answered the question"
    assert "decision.not_found" in command("--as", GUS, "decide", go, "approve", cwd=dev.data_dir.parent).stderr

    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    lent = said(dev, LENA, "delegations", "add", GUS, "--until", tomorrow)
    eventually("the delegation counts", lambda: dev.get("/inbox", by=GUS)["items"])
    first = said(dev, GUS, "decide", go, "approve", "--shown", said(dev, GUS, "decisions", "show", go)["shown_digest"])
    assert (first["state"], first["approvals"], first["needed"]) == ("open", 1, 2)
    assert "gus@example.com voted approve for lena@example.com" in refused(dev, LENA, "decide", go, "approve")
    assert said(dev, ADA, "decide", go, "approve")["state"] == "answered"
    said(dev, LENA, "delegations", "end", lent["delegation_id"])

    # The approval was good for 2 s, and the write waits for 3.
    again = asked(dev, run_id, "go", but=go)
    shown = said(dev, LENA, "decisions", "show", again)
    assert (shown["previous"]["by"]["name"], shown["differences"], shown["votes"]) == (ADA, [], [])
    assert not dev.calls(run_id)
    said(dev, LENA, "decide", again, "approve")
    said(dev, ADA, "decide", again, "approve")
    run = dev.ended(run_id)
    assert (run["state"], run["outcome"]) == ("completed", "succeeded"), run["reason"]
    (call,) = dev.calls(run_id)
    assert call["arguments"]["title"] == "Restart on sunday"

    told = [entry["text"] for entry in dev.get(f"/runs/{run_id}/history", limit=200)["items"]]
    assert any(text.startswith("the approval of go held until") for text in told)
    assert "gus@example.com for lena@example.com approved draft, which is one vote" in told

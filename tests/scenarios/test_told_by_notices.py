"""The whole product tells people: over the real bus, to a real receiver and a real mail server, once each."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.notices import PUBLIC_URL, SECRET
from tests.support.receivers import Taken, receiver
from tests.support.stack import Dev, command, eventually, forget

CHANNELS: Final = """
channels:
  - { id: ops, kind: webhook, url_ref: ops_url, secret_ref: ops_secret, about: [decision.opened, run.suspended] }
  - id: deciders
    kind: email
    url_ref: mail_url
    sender: minutebook@example.com
    holders: true
    about: [decision.opened]
"""


@pytest.fixture
async def receivers(tmp_path: Path) -> AsyncIterator[tuple[Taken, Taken]]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(receiver("http", tmp_path / "http", secret=SECRET))
        smtp = await stack.enter_async_context(receiver("smtp", tmp_path / "smtp"))
        yield http, smtp


def test_who_may_decide_is_told_once_and_answers_by_the_link(receivers: tuple[Taken, Taken], tmp_path: Path) -> None:
    http, smtp = receivers
    home = tmp_path / "home"
    env = {
        "MINUTEBOOK_PUBLIC_URL": PUBLIC_URL,
        "MINUTEBOOK_SECRET_OPS_URL": http.url,
        "MINUTEBOOK_SECRET_OPS_SECRET": SECRET,
        "MINUTEBOOK_SECRET_MAIL_URL": smtp.url,
    }
    try:
        with Dev.start(home / ".minutebook", **env) as dev:
            decision_id = told(dev, http, smtp, home)
            dev.kill()
            with Dev.start(home / ".minutebook", **env) as again:
                assert again.decide(decision_id, "approve", by="dana@example.com").status_code == 200
                ended = again.ended(again.get(f"/decisions/{decision_id}")["run_id"])
                assert ended["state"] == "completed"
                listed = command("--json", "--as", "admin@example.com", "notices", "list", cwd=home)
                assert listed.returncode == 0, listed.stderr
                assert [item["state"] for item in json.loads(listed.stdout)] == ["sent", "sent"]
                shown = command("--as", "admin@example.com", "notices", "channels", cwd=home)
                assert "deciders" in shown.stdout
                assert "holders" in shown.stdout
                assert len(http.all()) == len(smtp.all()) == 1
    finally:
        forget(home / ".minutebook")


def told(dev: Dev, http: Taken, smtp: Taken, home: Path) -> str:
    """Declare the channels, start a run, and wait until everybody was told; returns the decision."""
    (home / "channels").mkdir()
    (home / "channels/channels.yaml").write_text(CHANNELS)
    synced = command("--as", "admin@example.com", "definitions", "sync", home / "channels", cwd=home)
    assert synced.returncode == 0, synced.stderr
    assert "channel ops" in synced.stdout
    body: dict[str, Any] = {"context": {"name": "Ada"}}
    started = dev.call("POST", "/definitions/hello/runs", by="dana@example.com", json=body)
    assert started.status_code == 201, started.text
    decision_id = str(dev.waiting(started.json()["run_id"], "approve")["decision_id"])
    [taken] = eventually("the webhook", http.all, seconds=2)
    [mail] = eventually("the e-mail", smtp.all, seconds=2)
    assert taken["verified"] is True
    link = f"{PUBLIC_URL}/decisions/{decision_id}"
    assert taken["body"]["data"]["link"] == link
    assert mail["to"] == ["dana@example.com"]
    assert link in mail["text"]
    eventually(
        "both are sent",
        lambda: [item["state"] for item in dev.get("/notices")["items"]] == ["sent", "sent"],
    )
    return decision_id

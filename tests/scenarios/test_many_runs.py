"""Runs that happen at the same time do not know of each other."""

import secrets
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.support.stack import Dev, story

RUNS = 10


def test_ten_stories_at_once_become_ten_pull_requests(dev: Dev) -> None:
    mark = secrets.token_hex(4)
    keys = [f"FERRY-{mark}-{number}" for number in range(RUNS)]

    def play(jira_key: str) -> Any:
        response = dev.deliver(story(jira_key))
        assert response.status_code == 202, response.text
        return dev.play(dev.started(jira_key))

    with ThreadPoolExecutor(RUNS) as threads:
        runs = dict(zip(keys, threads.map(play, keys), strict=True))

    assert len({run["run_id"] for run in runs.values()}) == RUNS
    numbers = set()
    for jira_key, run in runs.items():
        assert (run["state"], run["outcome"]) == ("completed", "succeeded")
        assert run["context"]["jira_key"] == jira_key
        (effect,) = run["effects"]
        assert effect["key"] == f"pull_request:{jira_key}"
        (call,) = dev.calls(run["run_id"])
        assert jira_key in call["meta"]["minutebook/idempotency-key"]
        assert effect["reference"].endswith(f"/pull/{call['number']}")
        numbers.add(call["number"])
        assert {step["key"]: step["round"] for step in run["steps"]}["story_analysis"] == 2
    assert len(numbers) == RUNS
    assert dev.verified().ok

"""Two replicas of every service, as real processes: the same work, none of it twice, whoever is stopped or killed."""

import json
import secrets
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from services.host.roster import ORDER
from tests.support.host import Served
from tests.support.stack import (
    DEFINITIONS,
    PREFIX,
    Dev,
    eventually,
    forget,
    gone,
    running,
    scripted_answers,
    signature,
    story,
)

RUNS = 20
AT_ONCE = 7
DRAIN_SECONDS = 10.0
SOON = {
    # What a killed process held is held for these times: shortened, so that the test need not wait for them.
    "MINUTEBOOK_RUNNER_LEASE_SECONDS": "4",
    "MINUTEBOOK_RUNNER_RENEW_SECONDS": "1",
    "MINUTEBOOK_SCHEDULER_LEASE_SECONDS": "2",
}
SLOW = """
workflow:
  id: slow
  name: A step that outlasts the time to drain
  triggers: [{ kind: manual, roles: [developer] }]
  stages:
    - key: only
      steps: [{ key: slow, kind: agent, prompt: prompts/step.md }]
"""
SLOW_SECONDS = 12


class Fleet:
    """`minutebook dev --processes`, and a second replica of every service beside its own."""

    def __init__(self, dev: Dev, folder: Path, exit_: ExitStack) -> None:
        self.dev = dev
        self._folder = folder
        self._exit = exit_
        # The replicas are told what dev's own services are told.
        environment = psutil.Process(self.pid("planner")).environ()
        self._env = {k: v for k, v in environment.items() if k.startswith("MINUTEBOOK_")}
        self._logs: list[Path] = []
        self.replicas: dict[str, Served] = {name: self._replica(name) for name in ORDER}
        self.api_urls = [dev.file["api_url"], self.replicas["api"].up()["api_url"]]
        for replica in self.replicas.values():
            replica.up()

    def pid(self, name: str) -> int:
        """Of dev's own process of a service, now."""
        return int(json.loads((self.dev.data_dir / "dev.json").read_text())["processes"][name]["pid"])

    @property
    def said(self) -> list[dict[str, Any]]:
        """Every log line of every process."""
        logs = [*sorted((self.dev.data_dir / "logs").glob("*.log")), *self._logs]
        lines = [line for log in logs for line in log.read_text().splitlines()]
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def replace(self, name: str) -> float:
        """Stop the second replica of a service as a deploy does, and start another; returns how long it drained."""
        replica = self.replicas[name]
        replica.signal(signal.SIGTERM)
        code, seconds = replica.ended(within=2 * DRAIN_SECONDS)
        assert code == 0, replica.said
        self.replicas[name] = self._replica(name)
        self.replicas[name].up()
        if name == "api":
            self.api_urls[1] = self.replicas[name].up()["api_url"]
        return seconds

    def post(self, path: str, *, to: int, **request: Any) -> httpx.Response:
        """Send to one of the two apis; when nobody listens there, to the other."""
        try:
            return httpx.post(self.api_urls[to % 2] + path, timeout=30, **request)
        except httpx.ConnectError:
            return httpx.post(self.api_urls[(to + 1) % 2] + path, timeout=30, **request)

    def _replica(self, name: str) -> Served:
        log = self._folder / f"{name}.{secrets.token_hex(4)}.log"
        self._logs.append(log)
        env = {**self._env, "MINUTEBOOK_HTTP_PORT": "0", "MINUTEBOOK_OPS_PORT": "0"}
        return self._exit.enter_context(Served(name, log=log, env=env))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    definitions = tmp_path / "definitions"
    shutil.copytree(DEFINITIONS, definitions)
    slow = definitions / "workflows/slow"
    for sub in ("prompts", "demo"):
        (slow / sub).mkdir(parents=True)
    (slow / "workflow.yaml").write_text(SLOW)
    (slow / "prompts/step.md").write_text("Do it.\n")
    rules = [{"step": "slow", "output": {"done": True}, "delay_seconds": SLOW_SECONDS}]
    (slow / "demo/model.json").write_text(json.dumps(rules))
    data_dir = tmp_path / "data"
    try:
        with ExitStack() as exit_:
            dev = exit_.enter_context(Dev.start(data_dir, "--processes", "--definitions", definitions, **SOON))
            yield Fleet(dev, tmp_path, exit_)
    finally:
        forget(data_dir)


def test_two_of_each_do_the_work_of_one(fleet: Fleet) -> None:
    dev = fleet.dev
    assert set(dev.file["processes"]) == set(ORDER)
    slow_run = start_slow(fleet)
    keys = [f"FERRY-{secrets.token_hex(4)}" for _ in range(RUNS)]

    with ThreadPoolExecutor(AT_ONCE + 2) as threads:
        played = [threads.submit(play, fleet, key, number) for number, key in enumerate(keys)]
        handed_back = threads.submit(stop_the_runner_of, fleet, slow_run)
        drains: dict[str, float] = {name: fleet.replace(name) for name in ORDER if name != "runner"}
        kill_one_of_dev(fleet, "planner")
        lead_passes_on(fleet)
        handed_back.result()  # a second signal to the same runner would end it at once
        drains["runner"] = fleet.replace("runner")
        runs = [future.result() for future in played]

    assert {name: seconds for name, seconds in drains.items() if seconds > DRAIN_SECONDS} == {}
    assert len({run["run_id"] for run in runs}) == RUNS
    assert {(run["state"], run["outcome"]) for run in runs} == {("completed", "succeeded")}
    for run in runs:
        assert len(dev.calls(run["run_id"])) == 1
    slow = dev.ended(slow_run)
    assert slow["outcome"] == "succeeded"
    nothing_was_done_twice(dev, slow_run)
    assert dev.verified().ok
    assert [line for line in fleet.said if line["level"] in ("error", "critical")] == []
    servers = dev.children
    assert dev.stop() == 0, dev.complained
    assert gone(servers)


def start_slow(fleet: Fleet) -> str:
    token = fleet.dev.file["tokens"]["dana@example.com"]
    headers = {"authorization": f"Bearer {token}"}
    started = fleet.post(PREFIX + "/definitions/slow/runs", to=1, headers=headers, json={"context": {}})
    assert started.status_code == 201, started.text
    return str(started.json()["run_id"])


def play(fleet: Fleet, jira_key: str, number: int) -> Any:
    """Take one story to its end: its webhook comes to both apis, its answers to one and the other."""
    dev = fleet.dev
    run_id = deliver_to_both(fleet, jira_key)
    for turn, answer in enumerate(scripted_answers()):
        waiting = dev.waiting(run_id, answer["step"], round_=answer["round"])
        headers = {"authorization": f"Bearer {dev.file['tokens'][answer['user']]}"}
        path = f"{PREFIX}/decisions/{waiting['decision_id']}/{answer['outcome']}"
        body = {"comment": answer["comment"]} if "comment" in answer else {}
        answered = fleet.post(path, to=number + turn, headers=headers, json=body)
        assert answered.status_code == 200, answered.text
    return dev.ended(run_id)


def deliver_to_both(fleet: Fleet, jira_key: str) -> str:
    body = story(jira_key)
    headers = signature(body, fleet.dev.file["webhook_secrets"]["jira"])
    statuses = [
        fleet.post("/api/public/workflows/events/jira", to=to, content=body, headers=headers).json()["status"]
        for to in (0, 1)
    ]
    assert sorted(statuses) == ["accepted", "duplicate"], statuses
    return fleet.dev.started(jira_key)


def stop_the_runner_of(fleet: Fleet, run_id: str) -> None:
    """A runner that is told to end while it executes what outlasts its time hands it back, and another goes on."""
    sql = (
        "select payload->>'runner' as runner from workflow_history"
        " where type = 'attempt.started' and metadata->>'correlation' = $1"
    )

    def by() -> str | None:
        rows = fleet.dev.query(sql, run_id)
        return str(rows[0]["runner"]) if rows else None

    pid = int(eventually("the slow step is executed", by).rpartition(":")[2])
    process = psutil.Process(pid)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    eventually("the runner's end", lambda: not running(process))
    assert time.monotonic() - began < DRAIN_SECONDS


def kill_one_of_dev(fleet: Fleet, name: str) -> None:
    """Dev says which of its services ended and starts it again."""
    before = fleet.pid(name)
    psutil.Process(before).kill()
    eventually(f"another {name}", lambda: fleet.pid(name) != before)
    assert f"{name} ended by SIGKILL; it is started again" in fleet.dev.said


def lead_passes_on(fleet: Fleet) -> None:
    """The scheduler that leads is killed: another one does once the lease has run out."""
    holder = leader(fleet.dev)
    lead = next(line for line in fleet.said if line["event"] == "scheduler leads" and line["holder"] == holder)
    ours = any(line.get("holder") == holder for line in fleet.replicas["scheduler"].lines)
    assert lead
    pid = fleet.replicas["scheduler"].process.pid if ours else fleet.pid("scheduler")
    psutil.Process(pid).kill()
    eventually("another leader", lambda: leader(fleet.dev) not in ("", holder), seconds=20)


def leader(dev: Dev) -> str:
    rows: Sequence[Any] = dev.query(
        "select holder::text from leases where name = 'scheduler' and until > minutebook_now()"
    )
    return str(rows[0]["holder"]) if rows else ""


def nothing_was_done_twice(dev: Dev, slow_run: str) -> None:
    """Each attempt was started once and by either runner, each write announced once."""
    started = dev.query(
        "select stream_id, count(*) as times, count(distinct payload->>'runner') as runners from workflow_history"
        " where type = 'attempt.started' and metadata->>'correlation' <> $1 group by stream_id",
        slow_run,
    )
    assert {row["times"] for row in started} == {1}
    runners = dev.query(
        "select distinct payload->>'runner' as runner from workflow_history where type = 'attempt.started'"
    )
    assert len(runners) > 1
    (pending,) = dev.query(
        "select count(*) as n, count(distinct stream_id) as effects from workflow_history where type = 'effect.pending'"
    )
    assert (pending["n"], pending["effects"]) == (2 * RUNS, 2 * RUNS), "a write and its back-link of each"

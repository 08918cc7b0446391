"""The product as its users have it: the installed command, the processes that it starts, and plain HTTP."""

import asyncio
import hashlib
import hmac
import itertools
import json
import os
import shutil
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

import asyncpg
import httpx
import psutil

from libs.config import Secrets
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import Verification
from libs.eventstore.verify import verify
from libs.process.tools import mapper_on
from libs.sealing import KEY_REF

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[2]
DEFINITIONS: Final = ROOT / "definitions"
COMMAND: Final = Path(sysconfig.get_path("scripts")) / "minutebook"
PREFIX: Final = "/api/public/admin/workflows"
ENDED: Final = frozenset({"completed", "failed", "cancelled", "suspended"})

_SECONDS_MAX: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_BY_ROOT: Final = Path("/var/lib/minutebook")
_numbers = itertools.count(1)


def eventually(what: str, look: Callable[[], T | None], *, seconds: float = _SECONDS_MAX) -> T:
    """Look again and again until there is something to see, and return it. Never repeats an action."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(_LOOK_SECONDS)
    return found


def environment(**more: str) -> dict[str, str]:
    """The environment of a user who has set nothing of ours, and then `more`."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MINUTEBOOK_", "ANTHROPIC_", "PYTEST_"))}
    return {**inherited, **more}


def command(*args: str | Path, cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run `minutebook` to its end."""
    return subprocess.run(
        [COMMAND, *args],
        cwd=cwd,
        env=environment(**env),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=2 * _SECONDS_MAX,
        check=False,
    )


def children(pid: int) -> list[psutil.Process]:
    """Every process below this one, of those that have not ended."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def running(process: psutil.Process) -> bool:
    """Whether it has not ended. A zombie has: that nobody asks for its exit code is its new parent's affair."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(processes: list[psutil.Process], *, seconds: float = 15) -> bool:
    """Whether all of them end in time."""
    return eventually(f"the end of {processes}", lambda: not any(map(running, processes)), seconds=seconds)


def signature(body: bytes, secret: str) -> dict[str, str]:
    """The headers of a delivery that its sender signed."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"content-type": "application/json", "x-hub-signature-256": f"sha256={digest}"}


def story(jira_key: str) -> bytes:
    """The webhook body of the shipped story under another key. No two are the same event."""
    body = json.loads((DEFINITIONS / "workflows/core-dev/demo/story.json").read_text())
    body["issue"]["key"] = jira_key
    body["timestamp"] += next(_numbers)
    return json.dumps(body).encode()


class Dev:
    """A `minutebook dev`, and the calls of the people who use it. As a context manager it leaves nothing behind."""

    def __init__(self, data_dir: Path, process: subprocess.Popen[bytes], out: Path, err: Path) -> None:
        self.data_dir = data_dir
        self.process = process
        self._out = out
        self._err = err
        self._http: httpx.Client | None = None
        self._keys: dict[str, str | None] = {}
        self.file: dict[str, Any] = {}

    @classmethod
    def start(cls, data_dir: Path, *args: str | Path, **env: str) -> Self:
        """Start it on a data directory, on a free port, and return when it says that it is up."""
        data_dir.parent.mkdir(parents=True, exist_ok=True)
        number = next(_numbers)
        out, err = (data_dir.with_name(f"{data_dir.name}.{number}.{name}") for name in ("out", "err"))
        with out.open("wb") as to_out, err.open("wb") as to_err:
            process = _spawn(["dev", "--port", "0", "--data-dir", data_dir, *args], to_out, to_err, env)
        dev = cls(data_dir, process, out, err)
        try:
            eventually("dev is up", dev._is_up)
        except BaseException:
            dev.kill()
            forget(data_dir)
            raise
        dev.file = json.loads((data_dir / "dev.json").read_text())
        dev._http = httpx.Client(base_url=dev.file["api_url"], timeout=_SECONDS_MAX)
        return dev

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        forget(self.data_dir)

    @property
    def said(self) -> str:
        """Everything that it has written to its output."""
        return self._out.read_text()

    @property
    def complained(self) -> str:
        """Everything that it has written to its error output."""
        return self._err.read_text()

    @property
    def children(self) -> list[psutil.Process]:
        """Its servers and their processes, now."""
        return children(self.process.pid)

    def child(self, name: str) -> psutil.Process:
        """Its own server of this name."""
        found = [child for child in psutil.Process(self.process.pid).children() if child.name() == name]
        assert len(found) == 1, found
        return found[0]

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, unless it has ended already, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.wait()

    def wait(self) -> int:
        """Return its exit code when it has ended; one that does not end is killed and a failure."""
        if self._http is not None:
            self._http.close()
        try:
            return self.process.wait(_SECONDS_MAX)
        finally:
            self.process.kill()
            self.process.wait()

    def call(self, method: str, path: str, *, by: str | None = None, **request: Any) -> httpx.Response:
        """Send a request; a path that does not start with `/api` is below the usual prefix. `by` is who asks."""
        assert self._http is not None
        headers = dict(request.pop("headers", {}))
        if by is not None:
            headers["authorization"] = f"Bearer {self.file['tokens'][by]}"
        full = path if path.startswith("/api/") else PREFIX + path
        return self._http.request(method, full, headers=headers, **request)

    def get(self, path: str, *, by: str = "admin@example.com", **query: Any) -> Any:
        """What a GET answers; it must succeed."""
        response = self.call("GET", path, by=by, params=query)
        assert response.status_code == 200, response.text
        return response.json()

    def deliver(
        self, body: bytes, *, source: str = "jira", secret: str | None = None, **headers: str
    ) -> httpx.Response:
        """Post a webhook, signed with the source's secret unless another one is given."""
        signed = signature(body, secret if secret is not None else self.file["webhook_secrets"]["jira"])
        return self.call("POST", f"/api/public/workflows/events/{source}", content=body, headers={**signed, **headers})

    def decide(self, decision_id: str, outcome: str, *, by: str, **body: Any) -> httpx.Response:
        """Answer a decision."""
        return self.call("POST", f"/decisions/{decision_id}/{outcome}", by=by, json=body)

    def run(self, run_id: str) -> Any:
        """A run as its administrator sees it."""
        return self.get(f"/runs/{run_id}")

    def runs_of(self, jira_key: str) -> list[str]:
        """The ids of all runs with this key in their context."""
        listed = self.get("/runs", limit=200)
        assert listed["next_cursor"] is None, "more runs than this looks through"
        run_ids = [summary["run_id"] for summary in listed["items"]]
        for run_id in run_ids:
            if run_id not in self._keys:  # a context never changes
                self._keys[run_id] = self.run(run_id)["context"].get("jira_key")
        return [run_id for run_id in run_ids if self._keys[run_id] == jira_key]

    def started(self, jira_key: str) -> str:
        """Wait for the one run of this key and return its id."""
        found = eventually(f"a run of {jira_key}", lambda: self.runs_of(jira_key))
        assert len(found) == 1
        return found[0]

    def waiting(self, run_id: str, step: str, *, round_: int = 1) -> Any:
        """Wait until the run asks for this decision, and return what it says of it."""
        return eventually(f"{step}, round {round_}, is asked", lambda: self._asked(run_id, step, round_))

    def ended(self, run_id: str) -> Any:
        """Wait until the run has ended, and return it."""
        return eventually(
            f"the end of run {run_id}", lambda: run if (run := self.run(run_id))["state"] in ENDED else None
        )

    def answer(self, run_id: str, answers: list[dict[str, Any]]) -> None:
        """Answer a run's decisions, each when it is asked, as the demo's script writes answers."""
        for answer in answers:
            waiting = self.waiting(run_id, answer["step"], round_=answer["round"])
            body = {key: answer[key] for key in ("comment",) if key in answer}
            if "revise" in answer:
                shown = self.get(f"/decisions/{waiting['decision_id']}", by=answer["user"])["artifact"]
                body["revised_artifact"] = revised(shown, answer["revise"])
            response = self.decide(waiting["decision_id"], answer["outcome"], by=answer["user"], **body)
            assert response.status_code == 200, response.text

    def play(self, run_id: str, answers: list[dict[str, Any]] | None = None) -> Any:
        """Answer a run's decisions, with the demo's answers unless others are given, and return it at its end."""
        self.answer(run_id, scripted_answers() if answers is None else answers)
        return self.ended(run_id)

    def calls(self, run_id: str) -> list[Any]:
        """The writes of this run that reached the code host."""
        return self._called(run_id, "write")

    def links(self, run_id: str) -> list[Any]:
        """The back-links to this run that reached the code host."""
        return self._called(run_id, "back_link")

    def _called(self, run_id: str, kind: str) -> list[Any]:
        file = Path(self.file["sandbox_calls"])
        lines = file.read_text().splitlines() if file.exists() else []
        told = ((call, call["meta"]) for line in lines if (call := json.loads(line)))
        return [
            call for call, meta in told if (meta.get("minutebook/run"), meta.get("minutebook/kind")) == (run_id, kind)
        ]

    def target_fails(self, *faults: Mapping[str, Any]) -> None:
        """Let these befall the calls to the systems that are written to; none lets them go well again."""
        response = httpx.put(
            f"{self.file['sandbox_url']}/faults",
            json=list(faults),
            headers={"authorization": f"Bearer {self.file['sandbox_token']}"},
        )
        assert response.status_code == 200, response.text

    def query(self, sql: str, *args: object, user: str = "postgres") -> list[asyncpg.Record]:
        """Read the database, as its owner or as another role. Statements that fail raise what PostgreSQL says."""

        async def fetch() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.file["postgres_dsn"], user=user)
            try:
                return list(await connection.fetch(sql, *args))
            finally:
                await connection.close()

        return asyncio.run(fetch())

    def verified(self) -> Verification:
        """Compare chain and head rows with the history."""

        async def check() -> Verification:
            pool = await asyncpg.create_pool(self.file["postgres_dsn"], min_size=1, max_size=1)
            try:
                secrets = Secrets(overrides={KEY_REF: self.file["sealing_key"]})
                return await verify(pool, CATEGORIES, mapper=mapper_on(pool, secrets))
            finally:
                await pool.close()

        return asyncio.run(check())

    def _asked(self, run_id: str, step: str, round_: int) -> Any:
        run = self.run(run_id)
        assert run["state"] not in ENDED, f"the run is {run['state']}: {run['reason']}"
        reached = next(item for item in run["steps"] if item["key"] == step)["round"] == round_
        return next((item for item in run["waiting_for"] if item["step"] == step and reached), None)

    def _is_up(self) -> bool:
        assert self.process.poll() is None, f"dev ended with {self.process.returncode}: {self.complained}"
        return "Minutebook is up" in self.said


def scripted_answers(definition: str = "core-dev") -> list[dict[str, Any]]:
    """What the people of a shipped definition's script answer, in order."""
    answers: list[dict[str, Any]] = json.loads(
        (DEFINITIONS / f"workflows/{definition}/demo/decisions.json").read_text()
    )
    return answers


def revised(artifact: Any, changes: Mapping[str, Any]) -> Any:
    """A copy of an artefact with values set by dotted path."""
    copy = json.loads(json.dumps(artifact))
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = copy
        for parent in parents:
            target = target[parent]
        target[last] = value
    return copy


def forget(data_dir: Path) -> None:
    """Delete what a stack of this folder keeps outside of it: started by root, its database is elsewhere."""
    name = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    for home in (_BY_ROOT / "data", _BY_ROOT / "run", Path(f"/tmp/minutebook-{os.getuid()}")):
        for left in home.glob(f"{name}*"):
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink()


def _spawn(args: list[str | Path], out: IO[bytes], err: IO[bytes], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([COMMAND, *args], env=environment(**env), stdin=subprocess.DEVNULL, stdout=out, stderr=err)


__all__ = [
    "COMMAND",
    "DEFINITIONS",
    "ENDED",
    "PREFIX",
    "ROOT",
    "Dev",
    "children",
    "command",
    "environment",
    "eventually",
    "forget",
    "gone",
    "revised",
    "running",
    "scripted_answers",
    "signature",
    "story",
]

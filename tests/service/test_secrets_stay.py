"""Every secret is a mark that is found wherever it stands. A story with everything that fails is played; then we look.

The services are real processes that log all they can and export their traces; whoever they talk to outside repeats
what it was sent, as servers do that are badly made.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg
import httpx
import nats
from nats.aio.msg import Msg
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from libs.sealing import new_key
from services.dev.http import serve
from services.dev.sandbox_mcp import sandbox
from services.dev.scripted_model import scripted_model
from services.dev.scripts import Rule
from tests.support.fleet import found
from tests.support.host import Served
from tests.support.postgres import Database
from tests.support.receivers import Taken, receiver
from tests.support.stack import PREFIX, command

EXPORTER: Final = Path(__file__).parents[1] / "support/exporter"
PROCESSES: Final = (("api",), ("planner", "decision", "scheduler", "ingest"), ("runner", "effects"))
PERSON: Final = "ada@example.com"
ROBOT: Final = "robot@example.com"
PROMPT: Final = "Draft what the story asks for."
ENDED: Final = {"completed", "failed", "suspended", "cancelled"}

FILES: Final = {
    "workflows/pr/workflow.yaml": """
workflow:
  id: pr
  name: A pull request
  context: { required: [jira_key] }
  run_as: robot@example.com
  triggers:
    - { kind: manual, roles: [developer] }
    - { kind: event, source: jira, match: { event: issue_created }, project: core }
  roles: { lead: { roles: [developer] } }
  stages:
    - key: only
      name: Only
      steps:
        - { key: draft, kind: agent, agent: anthropic, prompt: prompts/draft.md, output: schemas/draft.json }
        - { key: review, kind: decision, role: lead, artifact: draft }
        - key: open
          kind: write
          system: github
          tool: create_pull_request
          args_from: draft.output
          effect_key: "pr:{{context.jira_key}}"
  on_failure: { default: suspend, connector_unavailable: suspend }
""",
    "workflows/pr/prompts/draft.md": f"{PROMPT}\n",
    "workflows/pr/schemas/draft.json": json.dumps(
        {
            "type": "object",
            "required": ["repo", "title", "head"],
            "properties": {key: {"type": "string"} for key in ("repo", "title", "head")},
            "additionalProperties": False,
        }
    ),
    "sources.yaml": "sources: [{ id: jira, kind: webhook, adapter: jira, secret_ref: jira_webhook_secret }]\n",
    "mcp/github.yaml": """
server:
  id: github
  transport: streamable_http
  url_ref: github_mcp_url
  token_ref: github_mcp_token
  tools: { create_pull_request: { reference: html_url, timeout: 10s } }
""",
    "channels.yaml": """
channels:
  - { id: hook, kind: webhook, url_ref: hook_url, secret_ref: hook_secret, about: [run.suspended, decision.opened] }
  - { id: mail, kind: email, url_ref: mail_url, sender: m@example.com, to: [o@example.com], about: [run.suspended] }
""",
}
DRAFT: Final = {"repo": "core", "title": "Export as CSV", "head": "workflow/7"}


def mark(name: str) -> str:
    return f"{name}-{secrets.token_hex(16)}"


@dataclass
class Marks:
    """The secrets of the story, each unlike anything else in it."""

    webhook: str = field(default_factory=lambda: mark("webhook"))
    webhook_previous: str = field(default_factory=lambda: mark("before"))
    server: str = field(default_factory=lambda: mark("server"))
    address: str = field(default_factory=lambda: mark("address"))
    grant: str = field(default_factory=lambda: mark("grant"))
    grant_of_robot: str = field(default_factory=lambda: mark("robot"))
    model: str = field(default_factory=lambda: mark("model"))
    hook_address: str = field(default_factory=lambda: mark("hook"))
    hook: str = field(default_factory=lambda: f"whsec_{base64.b64encode(secrets.token_bytes(24)).decode()}")
    smtp: str = field(default_factory=lambda: mark("smtp"))
    sealing: str = field(default_factory=new_key)
    sealing_previous: str = field(default_factory=new_key)
    key: str = ""
    token: str = ""

    def written(self) -> dict[str, tuple[str, ...]]:
        """Each by name, in every way in which it might stand somewhere."""
        ways: dict[str, tuple[str, ...]] = {}
        for name, text in vars(self).items():
            raw = text.encode()
            plain = base64.b64decode(text) if name.startswith("sealing") else raw
            ways[name] = (
                text,
                raw.hex(),
                base64.b64encode(raw).decode().rstrip("=")[:-1],
                plain.hex(),
                json.dumps(text)[1:-1],
            )
        return ways


class Outside:
    """A model and a target that say back to the caller what they were sent, until they are told to behave."""

    def __init__(self, model: ASGIApp, target: ASGIApp) -> None:
        self._model = model
        self._target = target
        self.rude = {"model", "target"}
        self.prompts: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._target(scope, receive, send)
            return
        of_model = scope["path"].startswith("/v1")
        if ("model" if of_model else "target") in self.rude:
            request = Request(scope, receive)
            echo = f"I do not know {dict(request.headers)} at {request.url}"
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": echo}}
            await JSONResponse(error, 400)(scope, receive, send)
            return
        await (self._model if of_model else self._target)(scope, self._heard(receive) if of_model else receive, send)

    def _heard(self, receive: Receive) -> Receive:
        async def heard() -> Any:
            message = await receive()
            self.prompts.append(message.get("body", b"").decode())
            return message

        return heard


@dataclass
class Story:
    """Everything that was said, by where it was said."""

    marks: Marks
    database: Database
    outside: Outside
    hook: Taken
    served: list[Served]
    http: httpx.AsyncClient
    heard: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)

    async def call(self, method: str, path: str, *, by: str, body: Any = None, **more: Any) -> httpx.Response:
        answer = await self.http.request(
            method, path if path.startswith("/api") else PREFIX + path, headers=bearing(by), json=body, **more
        )
        self.replies.append(f"{answer.headers} {answer.text}")
        return answer

    async def deliver(self, key: str, *, signature: str | None = None, secret: str = "") -> int:
        issue = {"id": key, "key": key, "fields": {"summary": "Export as CSV"}}
        body = json.dumps({"webhookEvent": "jira:issue_created", "timestamp": 1, "issue": issue}).encode()
        signed = signature or hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"x-hub-signature-256": f"sha256={signed}"}
        answer = await self.http.post("/api/public/workflows/events/jira", content=body, headers=headers)
        self.replies.append(f"{answer.headers} {answer.text}")
        return answer.status_code

    async def run_of(self, key: str) -> Any:
        async def look() -> Any:
            for item in (await self.call("GET", "/runs", by=self.marks.key)).json()["items"]:
                run = (await self.call("GET", f"/runs/{item['run_id']}", by=self.marks.key)).json()
                if run["context"]["jira_key"] == key:
                    return run
            return None

        return await found(look)

    async def rests(self, run_id: str, *states: str) -> Any:
        """Wait for a state, or for a decision when none is named."""

        async def look() -> Any:
            run = (await self.call("GET", f"/runs/{run_id}", by=self.marks.key)).json()
            assert run["state"] in states or run["state"] not in ENDED, run
            return run if run["state"] in (states or ("waiting_decision",)) else None

        return await found(look)


def bearing(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@asynccontextmanager
async def opened(database: Database, nats_url: str, folder: Path) -> AsyncIterator[Story]:
    """The services as three processes, with every secret in a file."""
    marks = Marks()
    async with AsyncExitStack() as exit_:
        box = sandbox(
            folder / "calls.jsonl", token=marks.server, grants={PERSON: marks.grant, ROBOT: marks.grant_of_robot}
        )
        outside = Outside(scripted_model({"pr": (Rule(output=DRAFT),)}).app, box.app)
        running = await serve(outside)
        exit_.push_async_callback(running.stop)
        hook = await exit_.enter_async_context(receiver("http", folder / "hook", secret=marks.hook))
        kept = {
            "jira_webhook_secret": marks.webhook,
            "jira_webhook_secret_previous": marks.webhook_previous,
            "github_mcp_url": f"{running.url}/mcp?key={marks.address}",
            "github_mcp_token": marks.server,
            "anthropic_api_key": marks.model,
            "hook_url": f"{hook.url}?key={marks.hook_address}",
            "hook_secret": marks.hook,
            "mail_url": f"smtp://minutebook:{marks.smtp}@127.0.0.1:1",
            "sealing_key": marks.sealing,
            "sealing_key_previous": marks.sealing_previous,
        }
        (folder / "secrets").mkdir()
        for ref, value in kept.items():
            (folder / "secrets" / ref).write_text(f"{value}\n")
        env = {
            "MINUTEBOOK_POSTGRES_DSN": database.owner_dsn,
            "MINUTEBOOK_NATS_URL": nats_url,
            "MINUTEBOOK_SECRETS_DIR": str(folder / "secrets"),
            "MINUTEBOOK_ANTHROPIC_BASE_URL": running.url,
            "MINUTEBOOK_SECRET_SEALING_KEY": marks.sealing,  # else the tests' own would come before the file
            "MINUTEBOOK_LOG_LEVEL": "debug",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "TEST_SPANS": str(folder / "spans"),
            "PYTHONPATH": str(EXPORTER),
        }
        await said(folder, "migrate", **env)
        person = ("--user", PERSON, "--roles", "developer,platform_admin", "--projects", "core")
        made = json.loads(await said(folder, "provision", "--group", "g", "--key", "ops", *person, "--json", **env))
        marks.key, marks.token = made["key"]["secret"], made["token"]["secret"]
        bus = await nats.connect(nats_url)
        exit_.push_async_callback(bus.close)
        served = [exit_.enter_context(Served(*names, log=folder / f"{names[0]}.log", env=env)) for names in PROCESSES]
        ups = [await asyncio.to_thread(process.up) for process in served]
        http = await exit_.enter_async_context(httpx.AsyncClient(base_url=ups[0]["api_url"], timeout=30))
        story = Story(marks, database, outside, hook, served, http)

        async def hear(message: Msg) -> None:
            story.heard.append(f"{message.subject} {message.headers} {message.data.decode(errors='replace')}")

        await bus.subscribe(">", cb=hear)
        yield story


async def said(folder: Path, *args: str, **env: str) -> str:
    done = await asyncio.to_thread(command, *args, cwd=folder, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def play(story: Story) -> None:
    """From grants that are refused to a pull request, by way of everything that goes wrong."""
    marks = story.marks
    synced = await story.call("PUT", "/definitions", by=marks.key, body={"files": FILES})
    assert synced.status_code == 200, synced.text
    robot = {"email": ROBOT, "kind": "service_user", "projects": ["core"]}
    registered = await story.call("POST", "/users", by=marks.token, body=robot)
    assert registered.status_code == 201, registered.text
    await grants(story)
    assert await story.deliver("K-1", signature=marks.webhook) == 401
    assert await story.deliver("K-1", secret=marks.grant) == 401
    assert await story.deliver("K-1", secret=marks.webhook_previous) == 202

    by_event = (await story.run_of("K-1"))["run_id"]
    await story.rests(by_event, "suspended")
    story.outside.rude.discard("model")
    await go_on(story, by_event, "draft")
    assert await story.deliver("K-2", secret=marks.webhook) == 202
    started = await story.call(
        "POST", "/definitions/pr/runs", by=marks.token, body={"context": {"jira_key": "K-3"}, "project_id": "core"}
    )
    by_hand = started.json()["run_id"]
    for run_id in (by_event, by_hand):
        await approve(story, run_id)
        await story.rests(run_id, "suspended")
    story.outside.rude.discard("target")
    for run_id in (by_event, by_hand):
        await go_on(story, run_id, "open")
        await story.rests(run_id, "completed")
        await story.call("GET", f"/runs/{run_id}/history?limit=200", by=marks.key)
    for path in ("/effects", "/grants", "/users", "/schedules", "/events", "/definitions/pr", "/me", "/inbox"):
        await story.call("GET", path, by=marks.token)
    await story.call("GET", "/me", by=f"{marks.token}x")


async def grants(story: Story) -> None:
    marks = story.marks
    for wrong in (
        {"server": "nowhere"},
        {"token": [marks.grant]},
        {"token": f"{marks.grant}\n"},
        {"more": marks.grant},
    ):
        body = {"server": "github", "token": marks.grant, **wrong}
        assert (await story.call("POST", "/grants", by=marks.token, body=body)).status_code in (404, 422)
    for token, user in ((marks.grant, PERSON), (marks.grant_of_robot, ROBOT)):
        body = {"server": "github", "token": token, "user": user}
        assert (await story.call("POST", "/grants", by=marks.token, body=body)).status_code == 201


async def approve(story: Story, run_id: str) -> None:
    waiting = (await story.rests(run_id))["waiting_for"][0]
    answer = await story.call("POST", f"/decisions/{waiting['decision_id']}/approve", by=story.marks.token, body={})
    assert answer.status_code == 200, answer.text


async def go_on(story: Story, run_id: str, step: str) -> None:
    """Let a suspended run go on, and its failed step be tried again."""
    resumed = await story.call("POST", f"/runs/{run_id}/resume", by=story.marks.token, body={})
    if resumed.status_code == 200:
        return
    retried = await story.call("POST", f"/runs/{run_id}/steps/{step}/retry", by=story.marks.token, body={})
    assert retried.status_code == 200, f"{resumed.text} {retried.text}"


async def told(story: Story, folder: Path) -> dict[str, str]:
    """Everything that was written anywhere, as text. The services end first, with what they still have to say."""
    metrics = [await asyncio.to_thread(process.ops, "/metrics") for process in story.served]
    for process in story.served:
        process.signal()
    for process in story.served:
        code, _ = await asyncio.to_thread(process.ended)
        assert code == 0, process.said
    everywhere = {
        **{f"metrics of {process.names[0]}": got.text for process, got in zip(story.served, metrics, strict=True)},
        "replies": "\n".join(story.replies),
        "bus": "\n".join(story.heard),
        "prompts": "\n".join(story.outside.prompts),
        "spans": (folder / "spans").read_text(),
        "notices": "\n".join(json.dumps(taken["body"]) for taken in story.hook.all()),
        "target": (folder / "calls.jsonl").read_text(),
    }
    for process in story.served:
        everywhere[f"log of {process.names[0]}"] = process.said
    connection = await asyncpg.connect(story.database.owner_dsn)
    try:
        tables = await connection.fetch(
            "select quote_ident(table_schema) || '.' || quote_ident(table_name) as name from information_schema.tables"
            " where table_schema not in ('pg_catalog', 'information_schema')"
        )
        for table in (row["name"] for row in tables):
            rows = await connection.fetch(f"select t::text as text from {table} t")
            everywhere[f"table {table}"] = "\n".join(row["text"] for row in rows)
    finally:
        await connection.close()
    return everywhere


def leaks(marks: Marks, everywhere: dict[str, str]) -> Iterator[str]:
    for place, text in everywhere.items():
        for name, ways in marks.written().items():
            for way in ways:
                if way in text:
                    at = text.index(way)
                    yield f"{name} in {place}: {text[max(0, at - 200) : at]}<here>"


async def test_no_secret_stands_anywhere_but_where_it_is_kept(
    database: Database, nats_url: str, tmp_path: Path
) -> None:
    async with opened(database, nats_url, tmp_path) as story:
        await play(story)
        everywhere = await told(story, tmp_path)
    assert "\n".join(leaks(story.marks, everywhere)) == ""

    # What was looked through is what it seems to be, and a mark would have been found in it.
    assert [json.loads(line)["by"] for line in everywhere["target"].splitlines()] == [ROBOT, PERSON]
    assert PROMPT in everywhere["prompts"]
    assert [place for place, text in everywhere.items() if PROMPT in text and place.startswith(("log", "span"))] == []
    for place, sign in (
        ("bus", "history.run.suspended"),
        ("spans", '"name": "effect.call"'),
        ("notices", "run.suspended"),
        ("table public.workflow_history", "identity.grant_given"),
        ("table public.grant_secrets", "\\x01"),
        ("log of runner", "service stopped"),
        ("metrics of api", "minutebook_"),
    ):
        assert sign in everywhere[place], place
    for name, ways in story.marks.written().items():
        for way in ways:
            assert {leak.partition(" in here")[0] for leak in leaks(story.marks, {"here": f"xx{way}yy"})} == {name}

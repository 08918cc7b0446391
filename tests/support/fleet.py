"""All seven services in this process, on servers that a test may stop, kill and start again.

Two definitions are declared: `quick`, whose draft comes at once, and `slow`, whose draft takes `SLOW_SECONDS`. Both go
draft, review, pull request; deliveries of the source `jira` start `quick` ones.
"""

import asyncio
import hashlib
import hmac
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID

import asyncpg
import httpx
import psutil

from contracts.base import JsonValue
from contracts.envelope import Owner as ServiceName
from contracts.subjects import STREAMS
from libs.audit.signing import KEY_REF as SIGNING_KEY_REF
from libs.bus.declare import declare
from libs.config import Secrets, Settings
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import Verification
from libs.eventstore.verify import verify
from libs.postgres import migrate
from libs.process import Service
from libs.process.tools import open_tools
from libs.sealing import new_key
from minutebook.client import Client
from minutebook.models import RunView, WaitingForDecision
from services.api.identity import Identity
from services.api.server import ApiService
from services.dev.embedded_postgres import RunningPostgres, start_postgres
from services.dev.http import serve
from services.dev.nats_server import RunningNats, start_nats
from services.dev.sandbox_mcp import Sandbox, sandbox
from services.dev.scripted_model import scripted_model
from services.dev.scripts import Rule
from services.host.roster import BUILDERS, ORDER

T = TypeVar("T")

SLOW_SECONDS: Final = 2.0
EMAIL: Final = "ada@example.com"
COLLEAGUE: Final = "bob@example.com"
ENDED: Final = frozenset({"completed", "failed", "cancelled", "suspended"})
SHORT: Final[dict[str, Any]] = {
    "http_port": 0,
    "ask_timeout_seconds": 6.0,  # a machine that does much beside is no outage
    "scheduler_tick_seconds": 0.1,
    "outbox_age_seconds": 0.5,
    "runner_idle_seconds": 0.2,
    "runner_slots": 4,
    "drain_seconds": 3.0,
}
"""Settings under which what was lost is found within seconds. Leases stay long: nothing here may end one."""

STORE_BYTES: Final = sum(stream.max_bytes for stream in STREAMS)
"""What the streams claim of the bus's store, whether its disk has it or not."""

PATIENCE_SECONDS: Final = 60.0
"""How long something may take to be seen: what failed long is tried again after pauses of half a minute at most."""

_WEBHOOK_SECRET: Final = "a secret of the test"
_TOKEN: Final = "let me in"
_DRAFT: Final[JsonValue] = {"repo": "core", "title": "Export as CSV", "head": "workflow/7"}


def _definition(name: str, trigger: str = "") -> dict[str, str]:
    folder = f"workflows/{name}"
    return {
        f"{folder}/workflow.yaml": f"""
workflow:
  id: {name}
  name: {name}
  description: A draft, a review, a pull request.
  context: {{ required: [jira_key] }}
  run_as: {EMAIL}
  triggers:
    - {{ kind: manual, roles: [developer] }}
    {trigger}
  roles:
    lead: {{ roles: [developer] }}
  stages:
    - key: only
      name: Only
      steps:
        - {{ key: draft, kind: agent, prompt: prompts/draft.md, output: schemas/draft.json }}
        - {{ key: review, kind: decision, role: lead, artifact: draft }}
        - key: open_pr
          kind: write
          system: github
          tool: create_pull_request
          args_from: draft.output
          effect_key: "pr:{{{{context.jira_key}}}}"
  on_failure: {{ default: suspend, connector_unavailable: retry_backoff }}
""",
        f"{folder}/prompts/draft.md": "Draft it.\n",
        f"{folder}/schemas/draft.json": json.dumps(
            {
                "type": "object",
                "required": ["repo", "title", "head"],
                "properties": {key: {"type": "string"} for key in ("repo", "title", "head")},
                "additionalProperties": False,
            }
        ),
    }


FILES: Final = {
    **_definition("quick", "- { kind: event, source: jira, match: { event: issue_created }, project: core }"),
    **_definition("slow"),
    "sources.yaml": "sources:\n  - { id: jira, kind: webhook, adapter: jira, secret_ref: jira_webhook_secret }\n",
    "mcp/github.yaml": """
server:
  id: github
  transport: streamable_http
  url_ref: github_mcp_url
  token_ref: github_mcp_token
  tools: { create_pull_request: { reference: html_url, timeout: 10s } }
""",
}


class OwnNats:
    """A nats-server that is ended as a power cut would end it, and keeps its address."""

    def __init__(self, folder: Path, running: RunningNats) -> None:
        self._folder = folder
        self._running = running
        self.url = running.url

    async def kill(self) -> None:
        os.kill(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def start(self, *, store_bytes_max: int = STORE_BYTES) -> None:
        self._running = await start_nats(self._folder, port=self._running.port, store_bytes_max=store_bytes_max)

    def wipe(self) -> None:
        """Lose everything that it stored."""
        shutil.rmtree(self._folder / "nats" / "jetstream")

    async def stop(self) -> None:
        await self._running.stop()


@asynccontextmanager
async def own_nats(folder: Path) -> AsyncIterator[OwnNats]:
    """A server of this test alone, with everything declared."""
    server = OwnNats(folder, await start_nats(folder, store_bytes_max=STORE_BYTES))
    try:
        await declare(server.url)
        yield server
    finally:
        await server.stop()


class OwnPostgres:
    """A PostgreSQL that is ended as a power cut would end it, and recovers when it is started again."""

    def __init__(self, folder: Path, running: RunningPostgres) -> None:
        self._folder = folder
        self._running = running

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return self._running.dsn(user, database)

    async def kill(self) -> None:
        os.kill(self._running.pid, signal.SIGKILL)
        await self._running.wait()

    async def start(self) -> None:
        self._running = await start_postgres(self._folder)

    async def stop(self) -> None:
        await self._running.stop()

    async def ended(self) -> None:
        """Wait until it has ended by itself."""
        await self._running.wait()

    @property
    def data(self) -> Path:
        """Where its files are, while it runs."""
        return Path(psutil.Process(self._running.pid).cwd())

    async def backup(self) -> Path:
        """Copy its files as a power cut leaves them, which is as good as a base backup, and let it go on."""
        data = self.data
        copy = data.with_name("backup")
        await self.kill()
        await asyncio.to_thread(_copy, data, copy)
        await self.start()
        return copy

    async def restore(self, backup: Path) -> None:
        """Put the files of a backup, once, in the place of those that there are."""
        data = self.data
        await self.kill()
        await asyncio.to_thread(_replace, data, backup)
        await self.start()

    async def remove(self) -> None:
        await self._running.remove()


def _copy(folder: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", folder, to], check=True)


def _replace(folder: Path, by: Path) -> None:
    shutil.rmtree(folder)
    by.rename(folder)


@asynccontextmanager
async def own_postgres(folder: Path) -> AsyncIterator[OwnPostgres]:
    """A server of this test alone, without a database of ours."""
    server = OwnPostgres(folder, await start_postgres(folder))
    try:
        yield server
    finally:
        await server.remove()


async def migrated(server: OwnPostgres) -> None:
    """Make the product's own database on it."""
    connection = await asyncpg.connect(server.dsn())
    await connection.execute("create database product")
    await connection.close()
    await migrate(server.dsn("product"))


@dataclass
class Fleet:
    """The running services, and a user who may do everything. `target` counts what was written to the outside.

    `colleague` is another person with the same role, and asks the second api where there are two.
    """

    owner_dsn: str
    url: str
    target: Sandbox
    client: Client
    colleague: Client
    http: httpx.AsyncClient
    services: Mapping[str, Service]
    client_secret: str
    runs: dict[str, UUID] = field(default_factory=dict)

    async def start(self, key: str, *, definition: str = "quick") -> UUID:
        """Start a run. `key` is unique in a fleet; the run's one write can be told by it."""
        changed = await self.client.start_run(definition, {"jira_key": key}, project_id="core", idempotency_key=key)
        self.runs[key] = changed.run_id
        return changed.run_id

    async def view(self, key: str) -> RunView:
        return await self.client.run(self.runs[key])

    async def waits(self, key: str) -> UUID:
        """Wait until a run asks for its review, and return the decision."""

        async def asked() -> UUID | None:
            waiting = (await self.view(key)).waiting_for
            return next((each.decision_id for each in waiting if isinstance(each, WaitingForDecision)), None)

        return await found(asked)

    async def approve(self, key: str) -> None:
        await self.client.decide(await self.waits(key), "approve", idempotency_key=f"approve {key}")

    async def deliver(self, key: str, *, summary: str = "") -> int:
        """Post a webhook; returns its status. With another `summary` it has another body under the same id."""
        issue = {"id": key, "key": key, "fields": {"summary": summary or key}}
        body = json.dumps({"webhookEvent": "jira:issue_created", "timestamp": 1, "issue": issue}).encode()
        signature = hmac.new(_WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
        response = await self.http.post(
            "/api/public/workflows/events/jira", content=body, headers={"x-hub-signature-256": f"sha256={signature}"}
        )
        return response.status_code

    async def started_by(self, key: str) -> UUID:
        """Wait for the run that a delivery started."""

        async def run_of() -> UUID | None:
            async for summary in self.client.runs(definition="quick"):
                if (await self.client.run(summary.run_id)).context.get("jira_key") == key:
                    return summary.run_id
            return None

        self.runs[key] = await found(run_of)
        return self.runs[key]

    async def completed(self, *keys: str, within: float = PATIENCE_SECONDS) -> None:
        """Wait until runs have ended, and see that all of them are completed."""
        for key in keys:
            seen: list[RunView] = []

            async def ended(key: str = key, seen: list[RunView] = seen) -> RunView | None:
                seen[:] = [await self.view(key)]
                return seen[0] if seen[0].state in ENDED else None

            try:
                view = await found(ended, within=within)
            except TimeoutError:
                raise AssertionError(f"{key} has not ended: {seen}") from None
            assert view.state == "completed", f"{key} is {view.state}: {view.reason}"

    def written(self) -> list[str]:
        """The keys whose write reached the target, once for each time."""
        return sorted(call["meta"]["minutebook/idempotency-key"].rpartition(":")[2] for call in self.target.calls())

    async def ready(self) -> frozenset[str]:
        """Ask every service whether it can work, as who runs them does every few seconds; returns those that can."""
        names, services = zip(*self.services.items(), strict=True)
        found = await asyncio.gather(*(service.ready() for service in services))
        return frozenset(name for name, each in zip(names, found, strict=True) if each.ok)

    async def verified(self) -> Verification:
        """Compare chain and head rows with the history."""
        pool = await asyncpg.create_pool(self.owner_dsn, min_size=1, max_size=1)
        try:
            return await verify(pool, CATEGORIES)
        finally:
            await pool.close()


async def found(look: Callable[[], Awaitable[T | None]], *, within: float = PATIENCE_SECONDS) -> T:
    """Look again and again, for at most `within` seconds, until there is something to see. Never repeats an action."""
    async with asyncio.timeout(within):
        while (seen := await look()) is None:  # noqa: ASYNC110 - the other side is a server
            await asyncio.sleep(0.05)
        return seen


@asynccontextmanager
async def open_fleet(
    app_dsn: str,
    owner_dsn: str,
    nats_url: str,
    folder: Path,
    *,
    names: Sequence[str] = ORDER,
    twice: Collection[ServiceName] = (),
    files: Mapping[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Fleet]:
    """Start all services on a migrated database and a declared bus; two people are there, and both definitions.

    `twice` names those of which a second replica runs, as `<name>.2`; `files` are definitions beside the two.
    """
    async with AsyncExitStack() as exit_:
        target = sandbox(folder / "calls.jsonl", token=_TOKEN)
        target_http = await serve(target.app)
        exit_.push_async_callback(target_http.stop)
        rules = {
            name: (Rule(output=_DRAFT, delay_seconds=seconds),)
            for name, seconds in (("quick", 0), ("slow", SLOW_SECONDS))
        }
        model = await serve(scripted_model(rules).app)
        exit_.push_async_callback(model.stop)
        secrets = Secrets(
            overrides={
                "jira_webhook_secret": _WEBHOOK_SECRET,
                "github_mcp_url": f"{target_http.url}/mcp",
                "github_mcp_token": _TOKEN,
                "anthropic_api_key": "scripted",
                SIGNING_KEY_REF: new_key(),
            }
        )
        given = Settings(
            **{"postgres_dsn": app_dsn, "nats_url": nats_url, "anthropic_base_url": model.url, **SHORT, **settings}
        )
        services: dict[str, Service] = {}
        for replica, name in [(name, name) for name in ORDER] + [(f"{name}.2", name) for name in twice]:
            if name in names:
                tools = await open_tools(name, given, secrets)
                services[replica] = BUILDERS[name](tools)
                exit_.push_async_callback(services[replica].stop)
                await services[replica].start()
        api, other = services["api"], services.get("api.2", services["api"])
        assert isinstance(api, ApiService)
        assert isinstance(other, ApiService)
        identity = Identity(tools.store, tools.bus)
        place = await identity.provision_group("example")
        await identity.project(place, "core")
        clients, secrets_minted = [], []
        for email, url in ((EMAIL, api.url), (COLLEAGUE, other.url)):
            user = await identity.register_user(place, email, roles=["platform_admin", "developer"], projects=["core"])
            minted = await identity.mint_key(place, name=f"token of {email}", user_id=user)
            secrets_minted.append(minted.secret)
            clients.append(await exit_.enter_async_context(Client(url, minted.secret)))
        client, colleague = clients
        http = await exit_.enter_async_context(httpx.AsyncClient(base_url=api.url, timeout=30))
        await client.sync({**FILES, **(files or {})})
        yield Fleet(owner_dsn, api.url, target, client, colleague, http, services, secrets_minted[0])

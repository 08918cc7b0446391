"""The api over real PostgreSQL, called as an ASGI application, with the owners that answer its asks in this process."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx

from contracts.base import JsonValue
from contracts.errors import MinutebookError, Unavailable
from libs.bus.memory import subject_matches
from libs.bus.port import AskHandler, Bus, Listener, Message
from libs.canonical import blob
from libs.config import Secrets, Settings
from libs.domain import attempt
from libs.eventstore.port import Store
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.owner import Item, Owner, Publisher
from libs.postgres.pool import open_pool
from libs.process import Service, Tools, actor
from libs.sealing import KEY_REF, new_key
from services.api.app import build
from services.api.identity import Identity, Place
from services.api.server import ApiService
from services.decision.app import build as build_decision
from services.planner.app import build as build_planner
from services.planner.runs import Runs
from tests.support.buses import QuietBus
from tests.support.postgres import Database

PREFIX = "/api/public/admin/workflows"
WEBHOOK_SECRET = "a secret of the test"
SEALING_KEY = new_key()

FILES: Mapping[str, str] = {
    "workflows/story/workflow.yaml": """
workflow:
  id: story
  name: Story
  description: One draft, one decision.
  context: { required: [jira_key] }
  triggers:
    - { kind: manual, roles: [developer] }
  roles:
    product_owner: { roles: [project_manager] }
  stages:
    - key: only
      name: The only one
      steps:
        - { key: draft, kind: agent, agent: echo, prompt: prompts/draft.md, output: schemas/draft.json }
        - { key: review, kind: decision, role: product_owner, artifact: draft, name: Is it right? }
        - key: post
          kind: write
          system: tracker
          tool: create
          args_from: draft.output
          effect_key: "post:{{context.jira_key}}"
""",
    "workflows/story/prompts/draft.md": "Draft it.\n",
    "workflows/story/schemas/draft.json": """{
  "type": "object", "required": ["title"], "properties": {"title": {"type": "string"}}, "additionalProperties": false
}""",
    "mcp/tracker.yaml": """
server: { id: tracker, transport: streamable_http, url_ref: tracker_url, tools: { create: {} } }
""",
}
SOURCES = """
sources:
  - { id: jira, kind: webhook, adapter: jira, secret_ref: jira_webhook_secret }
  - { id: open, kind: webhook, adapter: generic }
  - { id: orphan, kind: webhook, adapter: generic, secret_ref: nobody_set_this }
"""


@dataclass
class InProcessBus(QuietBus):
    """A bus inside this process: asks reach who answers them, published messages those who listen."""

    handlers: dict[str, AskHandler] = field(default_factory=dict)
    listeners: list[tuple[str, Listener]] = field(default_factory=list)

    def answer(self, subject: str, handler: AskHandler) -> None:
        self.handlers[subject] = handler

    def listen(self, subject: str, listener: Listener) -> None:
        self.listeners.append((subject, listener))

    async def publish(self, messages: Sequence[Message]) -> None:
        await super().publish(messages)
        for message in messages:
            for pattern, listener in self.listeners:
                if subject_matches(pattern, message.subject):
                    listener(message.subject, message.data)

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        if self.away or subject not in self.handlers:
            raise Unavailable("bus.away", "nobody answers")
        return await self.handlers[subject](subject, data, headers)


@dataclass
class World:
    """A running api with two tenant groups. `token` is by name: admin, dana, priya, gus, outsider."""

    database: Database
    tools: Tools
    service: ApiService
    http: httpx.AsyncClient
    identity: Identity
    runs: Runs
    place: Place
    elsewhere: Place
    tokens: dict[str, str] = field(default_factory=dict)
    users: dict[str, UUID] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.tools.store

    @property
    def bus(self) -> InProcessBus:
        """The bus of this process."""
        assert isinstance(self.tools.bus, InProcessBus)
        return self.tools.bus

    async def call(self, method: str, path: str, *, by: str | None = "admin", **request: Any) -> httpx.Response:
        """Send a request; a path without `/api` or a leading `/healthz` and the like is below the prefix."""
        headers = dict(request.pop("headers", {}))
        if by is not None:
            headers["authorization"] = f"Bearer {self.tokens.get(by, by)}"
        full = path if path.startswith(("/api", "/healthz", "/readyz", "/docs", "/openapi")) else PREFIX + path
        return await self.http.request(method, full, headers=headers, **request)

    async def get(self, path: str, *, by: str | None = "admin", **request: Any) -> Any:
        """What a GET answers; it must succeed."""
        response = await self.call("GET", path, by=by, **request)
        assert response.status_code == 200, response.text
        return response.json()

    async def sync(self, *, by: str = "admin", sources: bool = False) -> None:
        files = {**FILES, **({"sources.yaml": SOURCES} if sources else {})}
        response = await self.call("PUT", "/definitions", by=by, json={"files": files})
        assert response.status_code == 200, response.text

    async def start(self, *, by: str = "dana", key: str = "CORE-1", project: str | None = "core") -> UUID:
        """Start a run and plan it to its first wait."""
        body = {"context": {"jira_key": key}, "project_id": project}
        response = await self.call("POST", "/definitions/story/runs", by=by, json=body)
        assert response.status_code == 201, response.text
        return UUID(response.json()["run_id"])

    async def plan(self, run_id: UUID) -> None:
        assert await self.runs.plan({run_id: None}) == {}

    async def finish_attempt(self, run_id: UUID, output: JsonValue) -> None:
        """The open attempt of `draft` succeeds, and the run is planned on."""
        await self.plan(run_id)
        view = await self.get(f"/runs/{run_id}")
        attempt_id = UUID(view["steps"][0]["attempts"][-1]["attempt_id"])
        ref, content = blob(output)
        owner: Owner[attempt.State, attempt.Command] = Owner(
            attempt.CATEGORY, attempt.decide, store=self.store, publisher=Publisher(self.tools.bus, self.store)
        )
        claim = mint()
        commands: list[attempt.Command] = [
            attempt.Start(claim=claim, runner="runner-1"),
            attempt.Succeed(
                claim=claim, output=ref, content=content, cost_microdollars=1_234, model="scripted", turns=1
            ),
        ]
        results = await owner.handle(
            [Item(stream_id=attempt_id, command=c, actor=actor("runner"), causation=mint()) for c in commands]
        )
        assert not [r for r in results if isinstance(r, MinutebookError)]
        await self.plan(run_id)

    async def waiting(self, *, by: str = "dana", key: str = "CORE-1") -> tuple[UUID, UUID]:
        """A run that waits for its decision: (run, decision)."""
        run_id = await self.start(by=by, key=key)
        await self.finish_attempt(run_id, {"title": f"Draft of {key}"})
        view = await self.get(f"/runs/{run_id}")
        return run_id, UUID(view["waiting_for"][0]["decision_id"])


@asynccontextmanager
async def world(
    database: Database,
    *,
    bus: Bus | None = None,
    services: Sequence[Callable[[Tools], Service]] = (),
    secrets: Secrets | None = None,
    **changed: Any,
) -> AsyncIterator[World]:
    """A world with its users, definitions synced in both tenant groups. The bus is one of this process unless given.

    The planner and the decision service are there always, `services` besides them; their duties do not run. `changed`
    are settings other than the default ones.
    """
    settings = Settings(
        postgres_dsn=database.app_dsn, nats_url="nats://127.0.0.1:1", http_port=0, ask_timeout_seconds=2, **changed
    )
    pool = await open_pool(database.app_dsn, application_name="test api")
    bus = InProcessBus() if bus is None else bus
    secrets = secrets or Secrets(overrides={"jira_webhook_secret": WEBHOOK_SECRET, KEY_REF: SEALING_KEY})
    tools = Tools(settings=settings, secrets=secrets, pool=pool, store=PostgresStore(pool), bus=bus)
    service = build(tools)
    build_planner(tools)
    build_decision(tools)
    for build_service in services:
        build_service(tools)
    await bus.start()
    identity = Identity(tools.store, bus)
    transport = httpx.ASGITransport(app=service.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        place = await identity.provision_group("example")
        made = World(
            database=database,
            tools=tools,
            service=service,
            http=http,
            identity=identity,
            runs=Runs(tools.store, Publisher(bus, tools.store)),
            place=place,
            elsewhere=await identity.provision_group("elsewhere"),
        )
        await _people(made)
        await made.sync(sources=True)
        await made.sync(by="outsider")
        yield made
    await bus.stop()
    await tools.close()


async def _people(made: World) -> None:
    await made.identity.project(made.place, "core", name="Core")
    for name, place, roles, projects in (
        ("admin", made.place, ["platform_admin"], []),
        ("dana", made.place, ["developer"], ["core"]),
        ("priya", made.place, ["project_manager"], ["core"]),
        ("gus", made.place, [], []),
        ("outsider", made.elsewhere, ["platform_admin", "developer", "project_manager"], ["core"]),
    ):
        user_id = await made.identity.register_user(place, f"{name}@example.com", roles=roles, projects=projects)
        minted = await made.identity.mint_key(place, name=f"token of {name}", user_id=user_id)
        made.users[name], made.tokens[name] = user_id, minted.secret


__all__ = ["PREFIX", "SEALING_KEY", "WEBHOOK_SECRET", "InProcessBus", "World", "world"]

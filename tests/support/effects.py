"""Effects for tests: a record with a declared server and an owner, the real MCP server that they write to."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from contracts import ids
from contracts.base import JsonObject
from contracts.events.definition import ServerSynced, ToolDeclaration
from contracts.events.effect import EffectDeclared
from contracts.events.identity import UserRegistered
from contracts.events.run import RunCreated, RunStarted, Trigger, UserRef
from libs.config import Secrets
from libs.domain import definition, effect, identity, run
from libs.process import Service
from libs.sealing import KEY_REF, new_key
from services.dev.http import RunningHttp, serve
from services.dev.sandbox_mcp import Sandbox, sandbox
from services.effects.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, eventually, open_record

EMAIL: Final = "sam@example.com"
ARGUMENTS: Final[JsonObject] = {"repo": "core", "title": "Export as CSV", "head": "workflow/7"}
TOOL: Final = "create_pull_request"
TOKEN: Final = "let-the-server-in"
GRANT: Final = "let-sam-in-once"
GRANTED: Final = "Sam, by a grant"
"""Who wrote, in the target's record, when the call bore `GRANT`."""

SEALING_KEY: Final = new_key()

OVER_WITHIN: Final = timedelta(seconds=150)
"""When a planted call is over: later than any that a service here announces."""


def secrets(url: str) -> dict[str, str]:
    """What the service needs to call the server at `url`, and to open grants."""
    return {"github_mcp_url": f"{url}/mcp", "github_token": TOKEN, KEY_REF: SEALING_KEY}


@dataclass
class World:
    """A record with a declared server and an owner, the server itself, and as many services as a test starts."""

    record: Record
    target: Sandbox
    http: RunningHttp
    exit: AsyncExitStack

    async def service(self, kept: Secrets | None = None, **settings: Any) -> tuple[Service, ListeningBus]:
        """Start an effects service of its own, with the secrets that it needs unless they are given."""
        bus = ListeningBus()
        service = build(await self.record.tools(bus, secrets=kept or secrets(self.http.url), **settings))
        await service.start()
        self.exit.push_async_callback(service.stop)
        return service, bus

    async def run(self) -> UUID:
        """A run that is running."""
        run_id, now = uuid4(), await self.record.store.now()
        created = RunCreated(
            at=now,
            definition_id="core-dev",
            hash="0" * 64,
            bundle=await self.record.keep({}),
            context={},
            initiated_by=self.owner,
            trigger=Trigger(kind="manual"),
        )
        await self.record.plant(run.CATEGORY, run_id, created, RunStarted(at=now))
        return run_id

    async def declare(self, run_id: UUID, *, key: str = "pull_request", system: str = "github") -> UUID:
        """An effect of the run, as the planner declares it."""
        effect_id = ids.effect(run_id, key)
        declared = EffectDeclared(
            at=await self.record.store.now(),
            run_id=run_id,
            step="open_pr",
            key=key,
            system=system,
            tool=TOOL,
            arguments=await self.record.keep(ARGUMENTS),
            owner=self.owner,
        )
        await self.record.plant(effect.CATEGORY, effect_id, declared)
        return effect_id

    async def another_server(
        self, system: str, *, grants: Literal["required", "optional", "none"] = "optional"
    ) -> None:
        """Declare the target once more, under another name."""
        await self.record.plant(
            definition.CATEGORY,
            ids.server(self.record.group, system),
            _synced(system, await self.record.store.now(), grants),
        )

    @property
    def owner(self) -> UserRef:
        return UserRef(id=ids.user(self.record.group, EMAIL), email=EMAIL)

    async def until(self, effect_id: UUID, status: str, *, within: timedelta = timedelta(seconds=15)) -> effect.State:
        """Wait until an effect stands so."""

        async def reached() -> bool:
            return (await self.record.state(effect.CATEGORY, effect_id)).status == status

        await eventually(reached, within=within)
        return await self.record.state(effect.CATEGORY, effect_id)


@asynccontextmanager
async def open_world(database: Database, folder: Path) -> AsyncIterator[World]:
    """A world on an empty database; the server writes its calls down in the folder."""
    target = sandbox(folder / "calls.jsonl", token=TOKEN, grants={GRANTED: GRANT})
    async with AsyncExitStack() as exit_, open_record(database) as record:
        http = await serve(target.app)
        exit_.push_async_callback(http.stop)
        now = await record.store.now()
        await record.plant(definition.CATEGORY, ids.server(record.group, "github"), _synced("github", now))
        user = UserRegistered(at=now, email=EMAIL, name="Sam", kind="user")
        await record.plant(identity.CATEGORY, ids.user(record.group, EMAIL), user)
        async with exit_.pop_all() as services:
            yield World(record, target, http, services)


def _synced(system: str, now: datetime, grants: Literal["required", "optional", "none"] = "optional") -> ServerSynced:
    return ServerSynced(
        at=now,
        server_id=system,
        url_ref="github_mcp_url",
        token_ref="github_token",
        tools=(ToolDeclaration(name=TOOL, reference="html_url", timeout_seconds=5),),
        hash="0" * 64,
        grants=grants,
    )

"""The composition root: embedded servers and the seven services, in this process or each in one of its own."""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import asyncpg

from contracts.errors import Rejected, Unavailable
from libs.audit.signing import KEY_REF as SEAL_KEY_REF
from libs.bus.declare import declare
from libs.config import Secrets, Settings
from libs.config.settings import variable
from libs.eventstore.leases import end_all_leases
from libs.postgres.migrate import migrate
from libs.postgres.pool import APP_ROLE, open_pool
from libs.process import Service
from libs.process.tools import open_tools
from libs.sealing import KEY_REF
from minutebook.client import Client
from minutebook.folder import read_folder
from services.api.identity import Identity
from services.api.server import ApiService
from services.dev.datadir import DataDir
from services.dev.embedded_postgres import RunningPostgres, start_postgres
from services.dev.http import serve
from services.dev.nats_server import RunningNats, start_nats
from services.dev.options import Options
from services.dev.people import ADMINISTRATOR, PEOPLE, give_grants, seed
from services.dev.processes import Processes
from services.dev.sandbox_mcp import sandbox
from services.dev.scripted_model import scripted_model
from services.dev.scripts import load_scripts
from services.host.roster import BUILDERS, ORDER

DATABASE: Final = "minutebook"
SANDBOXED: Final = ("github", "salesforce", "atlassian")
"""MCP servers of the shipped definitions; the sandbox stands for all of them."""


class Stack:
    """A running stack. Leaving it as a context manager stops everything in reverse order."""

    def __init__(self, options: Options, progress: Callable[[str], None]) -> None:
        self._options = options
        self._progress = progress
        self._exit = AsyncExitStack()
        self.tokens: dict[str, str] = {}
        self.api_url = ""
        self.sandbox_calls = Path()
        self.sandbox_url = ""
        self.sandbox_tokens: dict[str, str] = {}
        self.owner_dsn = ""
        self.scripted_model_url = ""
        self.webhook_secret = ""
        self.secrets = Secrets()
        self._children: dict[str, RunningPostgres | RunningNats] = {}
        self._processes: Processes | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._exit.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    def client(self, user: str = ADMINISTRATOR) -> Client:
        """A client of the API that acts as a seeded user."""
        return Client(self.api_url, self.tokens[user])

    async def ended(self) -> str:
        """Wait until a server ends that should not, and return which and how."""
        waits = {asyncio.create_task(child.wait(), name=name): name for name, child in self._children.items()}
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        first = done.pop()
        return f"{waits[first]} ended with status {first.result()}"

    async def _start(self) -> None:
        data = DataDir.open(self._options.data_dir, reset=self._options.reset)
        self._exit.callback(data.close)
        settings, secrets = await self._servers(data, http_port=_free(self._options.port))
        if self._options.processes:
            await self._each_alone(settings, secrets, data)
        else:
            await self._together(settings, secrets, data)
        self._progress("syncing definitions")
        async with self.client() as client:
            await client.sync(read_folder(self._options.definitions))
            await give_grants(client, SANDBOXED, self.sandbox_tokens)
        self._write_state(data, settings)
        self._exit.callback(data.clear_state)

    def _write_state(self, data: DataDir, settings: Settings) -> None:
        state: dict[str, object] = {
            "api_url": self.api_url,
            "tokens": self.tokens,
            "nats_url": settings.nats_url,
            "postgres_dsn": self.owner_dsn,
            "sandbox_calls": str(self.sandbox_calls),
            "sandbox_url": self.sandbox_url,
            "sandbox_token": data.secret("sandbox"),
            "sandbox_tokens": self.sandbox_tokens,
            "scripted_model_url": self.scripted_model_url,
            "seal_signing_key": data.secret("seal signing key"),
            "webhook_secrets": {"jira": self.webhook_secret},
            "sealing_key": data.secret("sealing key"),
        }
        if self._processes is not None:
            state["processes"] = {
                name: {"pid": running.pid, "ops_url": running.ops_url}
                for name, running in self._processes.running.items()
            }
        data.write_state(state)

    async def _servers(self, data: DataDir, *, http_port: int) -> tuple[Settings, dict[str, str]]:
        """Start everything that the services need from outside; returns how they find it, and secrets by ref."""
        self._progress("starting PostgreSQL")
        postgres = await start_postgres(data.path, reset=self._options.reset)
        self._exit.push_async_callback(postgres.stop if self._options.keep else postgres.remove)
        await _create_database(postgres.dsn(database="postgres"))
        self.owner_dsn = postgres.dsn(database=DATABASE)
        await migrate(self.owner_dsn)
        await _end_leases(self.owner_dsn)
        self._progress("starting nats-server")
        nats = await start_nats(data.path, token=data.secret("nats"))
        self._exit.push_async_callback(nats.stop)
        self._children = {"PostgreSQL": postgres, "nats-server": nats}
        await declare(nats.url)

        self.sandbox_calls = data.path / "sandbox-calls.jsonl"
        self.sandbox_tokens = {person.email: data.secret(f"sandbox token of {person.email}") for person in PEOPLE}
        box = sandbox(self.sandbox_calls, token=data.secret("sandbox"), grants=self.sandbox_tokens)
        target = await serve(box.app)
        self._exit.push_async_callback(target.stop)
        self.sandbox_url = target.url
        model = await serve(scripted_model(load_scripts(self._options.definitions)).app)
        self._exit.push_async_callback(model.stop)
        self.scripted_model_url = model.url

        self.webhook_secret = data.secret("jira webhook")
        secrets = {
            "jira_webhook_secret": self.webhook_secret,
            KEY_REF: data.secret("sealing key"),
            SEAL_KEY_REF: data.secret("seal signing key"),
            **{f"{server}_mcp_url": f"{target.url}/mcp" for server in SANDBOXED},
            **{f"{server}_mcp_token": data.secret("sandbox") for server in SANDBOXED},
            "anthropic_api_key": _provider_key() if self._options.live else "scripted",
        }
        self.secrets = Secrets(overrides=secrets)
        settings = Settings(
            postgres_dsn=postgres.dsn(user=APP_ROLE, database=DATABASE),
            nats_url=nats.url,
            http_port=http_port,
            anthropic_base_url=None if self._options.live else model.url,
        )
        return settings, secrets

    async def _together(self, settings: Settings, secrets: Mapping[str, str], data: DataDir) -> None:
        """Every service in this process, stopped in reverse order: the door first."""
        self._progress("starting the seven services")
        services: dict[str, Service] = {}
        for name in ORDER:
            tools = await open_tools(name, settings, Secrets(overrides=secrets))
            services[name] = BUILDERS[name](tools)
            self._exit.push_async_callback(services[name].stop)
            await services[name].start()
        self.tokens = await seed(Identity(tools.store, tools.bus), data)
        api = services["api"]
        assert isinstance(api, ApiService)
        self.api_url = api.url

    async def _each_alone(self, settings: Settings, secrets: Mapping[str, str], data: DataDir) -> None:
        """Every service as a process of its own, which is started again when it ends."""
        self._progress("starting seven processes")

        def changed() -> None:
            self._write_state(data, settings)

        self._processes = Processes(
            _environment(settings, secrets),
            http_host=settings.http_host,
            http_port=settings.http_port,
            logs=data.path / "logs",
            say=self._progress,
            changed=changed,
        )
        self._exit.push_async_callback(self._processes.stop)
        await self._processes.start(ORDER)
        self.api_url = self._processes.api_url
        tools = await open_tools("api", settings, Secrets(overrides=secrets))
        try:
            await tools.bus.start()
            self.tokens = await seed(Identity(tools.store, tools.bus), data)
        finally:
            await tools.bus.stop()
            await tools.close()


def _environment(settings: Settings, secrets: Mapping[str, str]) -> dict[str, str]:
    """What a service's process reads: ours, and where this stack has what it needs."""
    own = {
        "postgres_dsn": settings.postgres_dsn,
        "nats_url": settings.nats_url,
    }
    if settings.anthropic_base_url is not None:
        own["anthropic_base_url"] = settings.anthropic_base_url
    return {
        **os.environ,
        **{variable(name): value for name, value in own.items()},
        **{variable(f"secret_{ref}"): value for ref, value in secrets.items()},
    }


def _free(port: int) -> int:
    """The port, or one that is free where 0 asks for one: links that people get hold it before the api listens.

    Raises:
        contracts.errors.Unavailable: ``dev.port_taken``, said while nothing has been started for it.
    """
    try:
        with socket.create_server(("127.0.0.1", port)) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unavailable(
            "dev.port_taken",
            f"port {port} cannot be had ({reason}); stop what listens there, or choose another one with --port "
            "(0 takes a free one)",
        ) from error


def _provider_key() -> str:
    key = os.environ.get("ANTHROPIC_API_KEY")
    if not key:
        raise Rejected(
            "dev.no_provider_key", "--live asks the provider's models: set ANTHROPIC_API_KEY, or leave it out"
        )
    return key


async def _end_leases(dsn: str) -> None:
    """This stack holds its folder alone, so whoever held a lease is dead: its work goes on at once."""
    pool = await open_pool(dsn, application_name="minutebook dev", connections_max=1)
    try:
        await end_all_leases(pool)
    finally:
        await pool.close()


async def _create_database(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        if not await connection.fetchval("select 1 from pg_database where datname = $1", DATABASE):
            await connection.execute(f'create database "{DATABASE}"')
    except asyncpg.PostgresError as error:
        raise Unavailable("dev.no_database", f"database {DATABASE} cannot be created: {error}") from error
    finally:
        await connection.close()

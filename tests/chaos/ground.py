"""What a fleet stands on: the two servers, the target that is written to, the model, the people and definitions."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg

from libs.audit.signing import KEY_REF as SIGNING_KEY_REF
from libs.config import Secrets, Settings
from libs.config.settings import variable
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import Verification
from libs.eventstore.verify import verify
from libs.process.tools import mapper_on, open_tools
from libs.sealing import KEY_REF, new_key
from minutebook.folder import read_folder
from services.api.identity import Identity
from services.dev.datadir import DataDir
from services.dev.http import serve
from services.dev.people import seed
from services.dev.sandbox_mcp import Sandbox, sandbox
from services.dev.scripted_model import scripted_model
from services.dev.scripts import Scripts, load_scripts
from tests.support.stack import DEFINITIONS, environment

MODEL_SECONDS: Final = 0.15
"""How long an agent's answer takes, so that a kill finds attempts under way."""

WRITES: Final = {
    "workflows/writes/workflow.yaml": """
workflow:
  id: writes
  name: An approval and a write
  context: { required: [key] }
  run_as: workflows@example.com
  triggers: [{ kind: manual, roles: [developer] }]
  roles:
    lead: { roles: [platform_admin] }
  stages:
    - key: only
      steps:
        - { key: approval, kind: decision, role: lead, outcomes: [approve, reject] }
        - key: open_pr
          kind: write
          system: github
          tool: create_pull_request
          args: { owner: acme, repo: booking, title: "{{context.key}}", head: "workflow/{{context.key}}" }
          effect_key: "pull_request:{{context.key}}"
  on_failure: { default: suspend, connector_unavailable: retry_backoff }
"""
}
"""A definition of which most of the time is the write."""

_SHORT: Final[Mapping[str, float]] = {
    "ask_timeout_seconds": 3,
    "outbox_age_seconds": 1,
    "runner_lease_seconds": 3,
    "runner_renew_seconds": 1,
    "runner_idle_seconds": 0.5,
    "scheduler_lease_seconds": 2,
    "scheduler_tick_seconds": 0.2,
    "drain_seconds": 5,
    # Chaos takes more leases from one attempt than any installation would: how often is not what is on trial.
    "leases_lost_max": 50,
}


@dataclass(frozen=True)
class Ground:
    """Running servers and what services are told of them. The target counts every call that acted."""

    owner_dsn: str
    target: Sandbox
    tokens: Mapping[str, str]
    webhook_secret: str
    settings: Settings
    secrets: Secrets
    environment: Mapping[str, str]
    folder: Path
    files: Mapping[str, str]

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        """Read the database, or change its clock, as its owner."""
        connection = await asyncpg.connect(self.owner_dsn)
        try:
            return list(await connection.fetch(sql, *args))
        finally:
            await connection.close()

    async def shift(self, by: timedelta) -> None:
        """Let the one clock of the installation go on by so much."""
        await self.fetch("update clock_shift set shift = shift + $1::interval", by)

    async def verified(self) -> Verification:
        """Compare chain and head rows with the history."""
        pool = await asyncpg.create_pool(self.owner_dsn, min_size=1, max_size=1)
        try:
            return await verify(pool, CATEGORIES, mapper=mapper_on(pool, self.secrets))
        finally:
            await pool.close()

    def calls(self) -> list[dict[str, Any]]:
        """Every call that acted at the target."""
        return self.target.calls()


@asynccontextmanager
async def identity(settings: Settings, secrets: Secrets) -> AsyncIterator[Identity]:
    """What registers people and mints tokens, as the door itself does."""
    tools = await open_tools("api", settings, secrets)
    try:
        await tools.bus.start()
        yield Identity(tools.store, tools.bus)
    finally:
        await tools.bus.stop()
        await tools.close()


@asynccontextmanager
async def open_ground(
    app_dsn: str,
    owner_dsn: str,
    nats_url: str,
    folder: Path,
    *,
    files: Mapping[str, str] | None = None,
    scripts: Scripts | None = None,
    **more: float,
) -> AsyncIterator[Ground]:
    """Stand up target, model and people on a migrated database and a declared bus. No service runs yet.

    `files` are definitions in place of the shipped ones, `scripts` what the model answers in them, `more` settings.
    """
    with DataDir.open(folder / "data") as data:
        target = sandbox(folder / "calls.jsonl", token=data.secret("sandbox"))
        target_http = await serve(target.app)
        model_http = await serve(scripted_model(_slower(scripts or load_scripts(DEFINITIONS))).app)
        try:
            secrets = {
                "jira_webhook_secret": data.secret("jira webhook"),
                "github_mcp_url": f"{target_http.url}/mcp",
                "github_mcp_token": data.secret("sandbox"),
                "anthropic_api_key": "scripted",
                KEY_REF: new_key(),
                SIGNING_KEY_REF: new_key(),
            }
            settings = {
                "postgres_dsn": app_dsn,
                "nats_url": nats_url,
                "anthropic_base_url": model_http.url,
                "ops_port": 0,
                **_SHORT,
                **more,
            }
            given, known = Settings(**settings), Secrets(overrides=secrets)  # type: ignore[arg-type]
            async with identity(given, known) as people:
                tokens = await seed(people, data)
            yield Ground(
                owner_dsn=owner_dsn,
                target=target,
                tokens=tokens,
                webhook_secret=secrets["jira_webhook_secret"],
                settings=given,
                secrets=known,
                environment=environment(
                    **{variable(name): str(value) for name, value in settings.items()},
                    **{variable(f"secret_{ref}"): value for ref, value in secrets.items()},
                ),
                folder=folder,
                files={name: _unhurried(text) for name, text in (files or _shipped()).items()} | WRITES,
            )
        finally:
            await target_http.stop()
            await model_http.stop()


def _shipped() -> dict[str, str]:
    """What is shipped, but for workflows with a schedule: they start runs when the clock is moved on past a slot."""
    files = read_folder(DEFINITIONS)
    scheduled = tuple(f"{name.rpartition('/')[0]}/" for name, text in files.items() if "kind: schedule" in text)
    return {name: text for name, text in files.items() if not name.startswith(scheduled)}


def _unhurried(text: str) -> str:
    """A file without its rate of calls: hundreds of writes that are settled at once need not wait for each other."""
    return re.sub(r"^ *rate_limit:.*\n", "", text, flags=re.MULTILINE)


def _slower(scripts: Scripts) -> Scripts:
    """The shipped answers, each after a while."""
    return {
        name: tuple(rule.model_copy(update={"delay_seconds": MODEL_SECONDS}) for rule in rules)
        for name, rules in scripts.items()
    }


__all__ = ["Ground", "identity", "open_ground"]

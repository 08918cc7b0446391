"""The commands of an installation on empty servers: migrate, serve, provision, and what they say when they cannot."""

import json
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from contracts.errors import Broken
from libs.config import Secrets, Settings
from libs.postgres import SCHEMA_VERSION
from libs.process.tools import open_tools
from minutebook.cli.session import Exit
from services.host.roster import ORDER
from tests.support.host import SEALED, Served
from tests.support.nats import NatsServer
from tests.support.postgres import Database, PostgresServer
from tests.support.stack import DEFINITIONS, PREFIX, command, eventually


def run(tmp_path: Path, *args: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return command(*args, cwd=tmp_path, **(SEALED | env))


def printed(result: subprocess.CompletedProcess[str]) -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.fixture
async def installation(postgres_server: PostgresServer, nats_url: str) -> dict[str, str]:
    """An empty database and an empty bus, as the environment says where they are."""
    name = await postgres_server.create()
    return {"MINUTEBOOK_POSTGRES_DSN": postgres_server.dsn(name), "MINUTEBOOK_NATS_URL": nats_url}


@pytest.fixture
def prepared(database: Database, nats_url: str, tmp_path: Path) -> dict[str, str]:
    """A database and a bus that are ready."""
    env = {"MINUTEBOOK_POSTGRES_DSN": database.owner_dsn, "MINUTEBOOK_NATS_URL": nats_url}
    printed(run(tmp_path, "migrate", "--json", **env))
    return env


def test_migrate_serve_provision_and_the_first_run(installation: dict[str, str], tmp_path: Path) -> None:
    first = printed(run(tmp_path, "migrate", "--json", **installation))
    assert first["schema_version"] == SCHEMA_VERSION
    assert len(first["migrations"]) == SCHEMA_VERSION
    assert "created stream HISTORY" in first["bus"]
    assert "created durable planner-history" in first["bus"]
    again = run(tmp_path, "migrate", **installation)
    assert (again.returncode, again.stdout) == (0, f"ready: schema {SCHEMA_VERSION}, nothing was changed\n")

    people = ("--user", "dana@example.com", "--roles", "developer,project_manager", "--projects", "core")
    made = printed(run(tmp_path, "provision", "--group", "acme", "--key", "ops", *people, "--json", **installation))
    assert made["group_existed"] is False
    other = run(tmp_path, "provision", "--group", "acme", "--key", "ops", **installation)
    assert "was there already; a new key was minted" in other.stdout
    assert made["key"]["secret"] not in other.stdout

    with Served("all", log=tmp_path / "log", env=installation) as served:
        up = served.up()
        assert up["services"] == list(ORDER)
        assert served.ops("/readyz").json()["status"] == "ready"
        assert set(served.ops("/readyz").json()["services"]) == set(ORDER)
        as_key = {"MINUTEBOOK_SERVER_ADDRESS": up["api_url"], "MINUTEBOOK_API_KEY": made["key"]["secret"]}
        synced = run(tmp_path, "definitions", "sync", DEFINITIONS, **as_key)
        assert synced.returncode == 0, synced.stderr
        start_and_decide(up["api_url"], made["key"]["secret"], made["token"]["secret"])
        served.signal(signal.SIGINT)
        code, seconds = served.ended()
        assert (code, seconds < 10) == (0, True), served.said
    assert made["key"]["secret"] not in served.said
    assert {line["event"] for line in served.lines if line["level"] in ("error", "critical")} == set()
    assert {line["service"] for line in served.lines if line["event"] == "service stopped"} == set(ORDER)


DECIDE = """
workflow:
  id: say-yes
  name: One decision
  triggers: [{ kind: manual, roles: [developer] }]
  roles: { decider: { roles: [project_manager] } }
  stages:
    - key: only
      steps: [{ key: yes_or_no, kind: decision, role: decider, outcomes: [approve, reject] }]
"""


def start_and_decide(url: str, key: str, token: str) -> None:
    """Over HTTP: the key syncs a definition, the person starts a run of it and decides."""
    with httpx.Client(base_url=url + PREFIX, timeout=30) as http:

        def call(method: str, path: str, secret: str, body: object = None) -> Any:
            response = http.request(method, path, json=body, headers={"authorization": f"Bearer {secret}"})
            assert response.status_code < 300, response.text
            return response.json()

        files = {"workflows/say-yes/workflow.yaml": DECIDE}
        call("PUT", "/definitions", key, {"files": files})
        run_id = call("POST", "/definitions/say-yes/runs", token, {"context": {}, "project_id": "core"})["run_id"]
        waiting = eventually("a decision", lambda: call("GET", f"/runs/{run_id}", token)["waiting_for"])
        call("POST", f"/decisions/{waiting[0]['decision_id']}/approve", token, {})
        eventually("the end", lambda: call("GET", f"/runs/{run_id}", token)["state"] == "completed")


def test_settings_that_are_missing_or_wrong_are_named_all_at_once(tmp_path: Path) -> None:
    wrong = {"MINUTEBOOK_POSTGRES_DSN": "mysql://u:s3cret@h/d", "MINUTEBOOK_RUNNER_SLOTS": "s3cret"}
    for args in (["serve", "planner"], ["migrate"], ["provision", "--group", "g", "--key", "k"]):
        refused = run(tmp_path, *args, **wrong)
        assert refused.returncode == Exit.USAGE
        assert refused.stdout == ""
        for name in (
            "MINUTEBOOK_POSTGRES_DSN: should be an address",
            "MINUTEBOOK_NATS_URL: must be set",
            "RUNNER_SLOTS",
        ):
            assert name in refused.stderr
        assert "s3cret" not in refused.stderr
        assert "Traceback" not in refused.stderr


def test_an_address_that_cannot_be_read_is_not_quoted(tmp_path: Path) -> None:
    wrong = {"MINUTEBOOK_POSTGRES_DSN": "postgresql://u:s3cret@h:port/d", "MINUTEBOOK_NATS_URL": "nats://127.0.0.1:1"}
    for args in (["serve", "planner"], ["migrate"]):
        refused = run(tmp_path, *args, **wrong, MINUTEBOOK_OPS_PORT="0")
        assert refused.returncode == Exit.USAGE
        assert "the PostgreSQL DSN cannot be read" in refused.stderr
        assert "s3cret" not in refused.stderr
    wrong |= {"MINUTEBOOK_POSTGRES_DSN": "postgresql:///d?host=/nowhere", "MINUTEBOOK_NATS_URL": "nats://s3cret@h:port"}
    refused = run(tmp_path, "migrate", **wrong)
    assert refused.returncode == Exit.UNREACHABLE
    assert "s3cret" not in refused.stderr


@pytest.mark.parametrize(
    ("name", "value"), [("MINUTEBOOK_RUNNER_RENEW_SECONDS", "90"), ("MINUTEBOOK_EFFECT_START_SECONDS", "9000")]
)
def test_a_setting_that_a_service_cannot_work_with_is_named(
    prepared: dict[str, str], tmp_path: Path, name: str, value: str
) -> None:
    wrong = {name: value, "MINUTEBOOK_OPS_PORT": "0"}
    refused = run(tmp_path, "serve", "runner", "effects", **prepared, **wrong)
    assert refused.returncode == Exit.USAGE
    assert name in refused.stderr


def test_services_that_do_not_exist(tmp_path: Path) -> None:
    env = {"MINUTEBOOK_POSTGRES_DSN": "postgresql:///x", "MINUTEBOOK_NATS_URL": "nats://x"}
    for args, says in (
        (["serve"], "name the services"),
        (["serve", "planer"], "there is no service planer; there are"),
    ):
        refused = run(tmp_path, *args, **env)
        assert refused.returncode == Exit.USAGE
        assert says in refused.stderr


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (f"delete from schema_migrations where version = {SCHEMA_VERSION}", "this release needs"),
        (f"insert into schema_migrations values ({SCHEMA_VERSION + 7}, 'drop_it')", "this release understands"),
    ],
)
async def test_a_schema_of_another_release_is_refused(
    change: str, says: str, database: Database, owner_pool: asyncpg.Pool, nats_url: str, tmp_path: Path
) -> None:
    await owner_pool.execute(change)
    env = {"MINUTEBOOK_POSTGRES_DSN": database.app_dsn, "MINUTEBOOK_NATS_URL": nats_url, "MINUTEBOOK_OPS_PORT": "0"}
    refused = run(tmp_path, "serve", "decision", **env)
    assert refused.returncode == Exit.UNREACHABLE
    assert says in refused.stderr
    assert f" {SCHEMA_VERSION}" in refused.stderr
    assert "minutebook migrate" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_servers_that_are_not_there(prepared: dict[str, str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = str(holder.getsockname()[1])
        taken = run(tmp_path, "serve", "planner", **prepared, MINUTEBOOK_OPS_PORT=port)
    assert taken.returncode == Exit.UNREACHABLE
    assert f"port {port}" in taken.stderr
    assert "MINUTEBOOK_OPS_PORT" in taken.stderr
    no_bus = {**prepared, "MINUTEBOOK_NATS_URL": f"nats://s3cret@127.0.0.1:{port}", "MINUTEBOOK_OPS_PORT": "0"}
    dsn = f"postgresql://u:s3cret@127.0.0.1:{port}/d"
    no_database = {**prepared, "MINUTEBOOK_POSTGRES_DSN": dsn, "MINUTEBOOK_OPS_PORT": "0"}
    cases = [
        (("serve", "planner"), no_bus, "no NATS server"),
        (("migrate",), no_bus, "no NATS server"),
        (("serve", "planner"), no_database, "PostgreSQL does not answer"),
    ]
    with ThreadPoolExecutor(len(cases)) as threads:  # each waits for a server for a while
        for refused, (_, _, says) in zip(
            threads.map(lambda case: run(tmp_path, *case[0], **case[1]), cases), cases, strict=True
        ):
            assert refused.returncode == Exit.UNREACHABLE
            assert says in refused.stderr
            assert "s3cret" not in refused.stderr
            assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("login", ["postgres", "minutebook_app", "member", "stranger"])
async def test_services_act_as_their_role_whoever_logs_in(
    login: str, database: Database, postgres_server: PostgresServer, nats_url: str
) -> None:
    """Also with an owner's DSN the history can only grow. A login that may not take the role has its own rights."""
    if login in ("member", "stranger"):
        await postgres_server.run(f"drop role if exists {login}")
        await postgres_server.run(f"create role {login} login {'in role minutebook_app' if login == 'member' else ''}")
    settings = Settings(postgres_dsn=postgres_server.dsn(database.name, login), nats_url=nats_url)
    if login == "stranger":
        with pytest.raises(Broken, match="permission denied"):
            await open_tools("planner", settings, Secrets())
        return
    tools = await open_tools("planner", settings, Secrets())
    try:
        row = await tools.require_pool().fetchrow(
            "select session_user, current_user, current_setting('plan_cache_mode'), current_setting('jit') as jit"
        )
        assert row is not None
        assert tuple(row) == (login, "minutebook_app", "force_generic_plan", "off")
        for forbidden in (
            "delete from workflow_history",
            "update workflow_history set version = 1",
            "drop table blobs",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await tools.require_pool().execute(forbidden)
    finally:
        await tools.close()


def test_two_signals_end_at_once_and_a_misspelt_setting_is_logged(prepared: dict[str, str], tmp_path: Path) -> None:
    env = {**prepared, "MINUTEBOOK_RUNNER_SLOT": "9", "MINUTEBOOK_SECRET_JIRA": "fine"}
    with Served("planner", "decision", log=tmp_path / "log", env=env) as served:
        served.up()
        warned = [line for line in served.lines if line["event"] == "unknown setting, is it misspelt"]
        assert [line["variable"] for line in warned] == ["MINUTEBOOK_RUNNER_SLOT"]
        served.signal()
        served.signal()
        code, seconds = served.ended()
        assert code in (0, 130)
        assert seconds < 5


def test_a_drain_ends_in_time_also_when_the_bus_hangs(
    database: Database, own_nats_server: NatsServer, tmp_path: Path
) -> None:
    env = {
        "MINUTEBOOK_POSTGRES_DSN": database.owner_dsn,
        "MINUTEBOOK_NATS_URL": own_nats_server.next_url(),
        "MINUTEBOOK_DRAIN_SECONDS": "2",
    }
    printed(run(tmp_path, "migrate", "--json", **env))
    with Served("planner", "runner", log=tmp_path / "log", env=env) as served:
        served.up()
        own_nats_server.freeze()
        served.signal()
        code, seconds = served.ended()
        own_nats_server.thaw()
    assert code == 0, served.said
    assert seconds < 4
    assert "Traceback" not in served.said


def test_every_setting_is_in_the_help(tmp_path: Path) -> None:
    helped = run(tmp_path, "serve", "--help", COLUMNS="200")
    for name, field in Settings.model_fields.items():
        assert f"MINUTEBOOK_{name.upper()}" in helped.stdout
        assert field.description

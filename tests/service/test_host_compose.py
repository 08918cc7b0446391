"""What docker-compose.yml runs, run here: each command with the environment that it sets, on servers of its kind."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from libs.sealing import new_key
from services.host.roster import ORDER
from tests.support.compose import ROOT, SET, services
from tests.support.host import Served
from tests.support.nats import binary
from tests.support.postgres import PostgresServer
from tests.support.stack import command, eventually


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[str]:
    """A nats-server on the configuration of the composition, with its own ports; its address as host and port."""
    port, monitor = free_port(), free_port()
    config = (ROOT / "infra/nats/nats-server.conf").read_text()
    config = config.replace("0.0.0.0:4222", f"127.0.0.1:{port}").replace("0.0.0.0:8222", f"127.0.0.1:{monitor}")
    (tmp_path / "nats.conf").write_text(config)
    environment = services()["nats"]["environment"] | {"NATS_STORE_DIR": str(tmp_path / "store")}
    log = tmp_path / "nats.log"
    with log.open("wb") as output:
        server = subprocess.Popen([binary(), "-c", tmp_path / "nats.conf"], env=environment, stderr=output)
    try:
        eventually("nats-server is ready", lambda: "Server is ready" in log.read_text())
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
async def database(postgres_server: PostgresServer) -> str:
    """A database and its owner as the composition's image makes them; its address as host and name."""
    owner = services()["postgres"]["environment"]["POSTGRES_USER"]
    name = await postgres_server.create()
    await postgres_server.run(f"drop role if exists {owner}")
    await postgres_server.run(f"create role {owner} superuser login")
    return postgres_server.dsn(name, owner)


def test_its_commands_run(database: str, bus: str, tmp_path: Path) -> None:
    def environment(name: str) -> dict[str, str]:
        """What the container is told, with the addresses of the servers here and ports that are free here."""
        told: dict[str, str] = services()[name]["environment"]
        dsn, owner = told["MINUTEBOOK_POSTGRES_DSN"], database.split("://")[1].split("@")[0]
        assert dsn.startswith(f"postgresql://{owner}@"), dsn
        return told | {
            "MINUTEBOOK_POSTGRES_DSN": database,
            "MINUTEBOOK_NATS_URL": told["MINUTEBOOK_NATS_URL"].replace("nats:4222", bus),
            "MINUTEBOOK_OPS_PORT": "0",
            "MINUTEBOOK_SECRETS_DIR": str(tmp_path),
        }

    (tmp_path / "sealing_key").write_text(new_key())
    for once in ("migrate", "provision"):
        ended = command(*services()[once]["command"], cwd=tmp_path, **environment(once))
        assert ended.returncode == 0, ended.stderr
    assert "key first: mbk_" in ended.stdout

    with ExitStack() as stack:
        served = {}
        for name in ORDER:
            verb, *names = services()[name]["command"]
            assert verb == "serve"
            served[name] = stack.enter_context(Served(*names, log=tmp_path / f"{name}.log", env=environment(name)))
        checks = {name: health_check(name, process.up()["ops_url"]) for name, process in served.items()}
        for name, check in checks.items():
            assert subprocess.run(check, check=False).returncode == 0, served[name].said
        for process in served.values():
            process.signal()
        assert {name: process.ended()[0] for name, process in served.items()} == dict.fromkeys(ORDER, 0)
        assert subprocess.run(checks["api"], check=False, stderr=subprocess.DEVNULL).returncode != 0
        for process in served.values():
            for secret in ("MINUTEBOOK_NATS_TOKEN", "MINUTEBOOK_POSTGRES_PASSWORD"):
                assert SET[secret] not in process.said


def health_check(name: str, ops_url: str) -> list[str]:
    _, program, *arguments = services()[name]["healthcheck"]["test"]
    assert program == "python"
    port = services()[name]["environment"]["MINUTEBOOK_OPS_PORT"]
    return [sys.executable, *(part.replace(f"http://127.0.0.1:{port}", ops_url) for part in arguments)]

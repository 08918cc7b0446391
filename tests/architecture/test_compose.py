"""docker-compose.yml and infra/Dockerfile name only what there is. That it runs: tests/service/test_host_compose.py."""

import re
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from libs.config import Settings
from libs.config.settings import PREFIX, unknown, variable
from services.host.roster import ORDER
from tests.support.compose import FILE, ROOT, SET, Unset, composed, services

DOCKERFILE = ROOT / "infra/Dockerfile"
DEFAULTS = {name: field.default for name, field in Settings.model_fields.items()}
OURS = [*ORDER, "migrate", "provision"]


def instructions(name: str) -> list[str]:
    text = DOCKERFILE.read_text().replace("\\\n", " ")
    return [line.removeprefix(f"{name} ").strip() for line in text.splitlines() if line.startswith(f"{name} ")]


def seconds(text: str) -> float:
    assert text.endswith("s")
    return float(text[:-1])


def test_every_service_is_a_container_of_its_own() -> None:
    assert set(services()) == {*OURS, "postgres", "nats"}
    for name in ORDER:
        container = services()[name]
        assert container["command"] == ["serve", name]
        assert container["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
        assert container["restart"] == "unless-stopped"
        assert "container_name" not in container, "it could not be scaled"
        assert seconds(container["stop_grace_period"]) > DEFAULTS["drain_seconds"]
    assert services()["migrate"]["restart"] == "no"
    for server in ("postgres", "nats"):
        assert services()["migrate"]["depends_on"][server]["condition"] == "service_healthy"
        assert services()[server]["healthcheck"]["test"][0] == "CMD"
    assert services()["postgres"]["image"] == "postgres:18"
    assert services()["nats"]["image"].startswith("nats:2.15")


@pytest.mark.parametrize("missing", SET)
def test_a_secret_that_is_not_set_is_asked_for_in_words(missing: str) -> None:
    with pytest.raises(Unset, match=f"set {missing}, "):
        services({name: value for name, value in SET.items() if name != missing})
    assert f"{missing}:-" not in FILE.read_text()


def test_every_variable_is_a_setting() -> None:
    for name in OURS:
        environment = services()[name]["environment"]
        assert unknown(environment) == ()
        for required in ("postgres_dsn", "nats_url"):
            assert variable(required) in environment
        assert all(isinstance(value, str) for value in environment.values()), "YAML would give a number or a boolean"
        assert {key for key in environment if not key.startswith(PREFIX)} == {"PGPASSWORD"}
        dsn = urlsplit(environment["MINUTEBOOK_POSTGRES_DSN"])
        assert (dsn.hostname, dsn.port, dsn.password) == ("postgres", 5432, None), "its password is PGPASSWORD"
        assert dsn.path == "/" + services()["postgres"]["environment"]["POSTGRES_DB"]
        assert dsn.username == services()["postgres"]["environment"]["POSTGRES_USER"]
        nats = urlsplit(environment["MINUTEBOOK_NATS_URL"])
        assert (nats.hostname, nats.port, nats.username) == ("nats", 4222, SET["MINUTEBOOK_NATS_TOKEN"])


def test_ports_agree() -> None:
    exposed = set(" ".join(instructions("EXPOSE")).split())
    for name in ORDER:
        container = services()[name]
        check = container["healthcheck"]["test"]
        assert check[:3] == ["CMD", "python", "-c"]
        assert f"http://127.0.0.1:{container['environment']['MINUTEBOOK_OPS_PORT']}/readyz" in check[3]
        assert container["environment"]["MINUTEBOOK_OPS_PORT"] in exposed
        assert ("ports" in container) is (name == "api"), "only the door is published"
    api = services()["api"]
    (published,) = api["ports"]
    assert published == f"127.0.0.1:8080:{api['environment']['MINUTEBOOK_HTTP_PORT']}"
    assert api["environment"]["MINUTEBOOK_HTTP_PORT"] in exposed
    config = (ROOT / "infra/nats/nats-server.conf").read_text()
    assert 'listen: "0.0.0.0:4222"' in config
    monitor = urlsplit(services()["nats"]["healthcheck"]["test"][-1])
    assert f'http: "0.0.0.0:{monitor.port}"' in config
    for name in re.findall(r"\$([A-Z_]+)", config):
        assert name in services()["nats"]["environment"]


def test_paths_exist_and_volumes_are_named() -> None:
    named = set(composed(SET)["volumes"])
    used = set()
    for container in services().values():
        for mount in container["volumes"]:
            source = mount.split(":")[0]
            if source == SET["MINUTEBOOK_SECRETS"]:
                assert container["environment"]["MINUTEBOOK_SECRETS_DIR"] == mount.split(":")[1]
            elif source.startswith("."):
                assert (ROOT / source).is_file(), source
            else:
                used.add(source)
    assert used == named
    build: dict[str, Any] = services()["api"]["build"]
    assert (ROOT / build["dockerfile"]) == DOCKERFILE
    nats = services()["nats"]
    assert nats["command"] == ["--config", nats["volumes"][0].split(":")[1]]
    assert nats["volumes"][1] == f"nats:{nats['environment']['NATS_STORE_DIR']}"


def test_the_image_holds_what_the_package_is_built_from() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    copied = [source for line in instructions("COPY") for source in line.split()[:-1]]
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for source in copied:
        assert (ROOT / source).exists(), source
    assert set(copied) == let_in, ".dockerignore lets in what is copied"
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert set(wheel["only-include"]) <= set(copied)
    assert all(any(Path(source).is_relative_to(part) for part in copied) for source in wheel["sources"])
    assert {project["project"]["readme"], *project["project"]["license-files"]} <= set(copied)

    (base,) = instructions("FROM")
    version = re.match(r"python:(\d+\.\d+)-slim", base)
    assert version is not None
    assert project["project"]["requires-python"] == f">={version[1]}"
    assert instructions("USER") == ["minutebook"]
    assert instructions("ENTRYPOINT") == ['["minutebook"]']
    assert "minutebook" in project["project"]["scripts"]
    assert instructions("CMD") == ['["serve", "all"]']

"""Every command of docs/api.md asks for something that the API has, in a way that it takes."""

import ast
import hashlib
import hmac
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import typer
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from libs.adapters import normalise, verify_signature
from minutebook.cli.main import build
from minutebook.models import DeliveryAccepted
from services.api import openapi, problems
from services.api.door import PREFIX, SCOPES
from services.api.parameters import PAGE_LIMIT, PAGE_LIMIT_MAX
from services.api.routes import ROUTERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/api.md").read_text("utf-8")
SHELL = "\n".join(re.findall(r"^```sh\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)).replace("\\\n", " ")
COMMANDS = [line for line in SHELL.splitlines() if line.startswith("curl ")]
NOT_SHOWN = {
    ("GET", f"{PREFIX}/definitions"),
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}


@dataclass(frozen=True, slots=True)
class Curl:
    """A command, read as curl reads it."""

    method: str
    path: str
    query: list[tuple[str, str]]
    headers: dict[str, str]
    data: str | None


def read(command: str) -> Curl:
    method, data, url, headers = None, None, "", {}
    words = iter(shlex.split(command)[1:])
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-d" | "--data-binary":
                data = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name.lower()] = value
            case _:
                assert not url, f"two addresses, or an option that is not read here: {word}"
                url = word
    path, _, query = url.replace("$API", PREFIX).replace("$HOST", "").partition("?")
    return Curl(method or ("POST" if data is not None else "GET"), path, parse_qsl(query), headers, data)


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    app = FastAPI()
    problems.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app.openapi()


def operation(description: dict[str, Any], curl: Curl) -> tuple[str, dict[str, Any]]:
    """The template that a path stands for and its operation; a literal part is worth more than a parameter."""
    fitting = [
        template
        for template, operations in description["paths"].items()
        if re.fullmatch(re.sub(r"\{\w+\}", r"[^/]+", template), curl.path) and curl.method.lower() in operations
    ]
    assert fitting, f"there is no {curl.method} {curl.path}"
    template = min(fitting, key=lambda found: found.count("{"))
    return template, description["paths"][template][curl.method.lower()]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_one_that_the_api_takes(command: str, description: dict[str, Any]) -> None:
    curl = read(command)
    _, found = operation(description, curl)
    parameters = {(p["in"], p["name"].lower()): p for p in found.get("parameters", ())}
    for name, value in curl.query:
        if name.startswith("context."):
            schema = parameters["query", "context"]["schema"]
            Draft202012Validator(schema).validate({name: value})
            continue
        schema = parameters["query", name]["schema"]
        if not value.startswith("$") and not re.search("integer|number|boolean", json.dumps(schema)):
            several = "array" in json.dumps(schema)
            Draft202012Validator(schema).validate([value] if several else value)
    assert ("idempotency-key" not in curl.headers) or ("header", "idempotency-key") in parameters
    assert "authorization" in curl.headers or "x-hub-signature-256" in curl.headers
    if curl.data is None or curl.data.startswith("$"):
        return
    assert curl.headers["content-type"] == "application/json"
    schema = found["requestBody"]["content"]["application/json"]["schema"]
    Draft202012Validator({**schema, "components": description["components"]}).validate(json.loads(curl.data))


def test_every_operation_is_shown_or_left_out_on_purpose(description: dict[str, Any]) -> None:
    shown = {(curl.method, operation(description, curl)[0]) for curl in map(read, COMMANDS)}
    there = {(method.upper(), path) for path, found in description["paths"].items() for method in found}
    assert there - shown == NOT_SHOWN


def test_the_codes_that_are_named_are_in_the_code() -> None:
    constants = {
        node.value
        for folder in ("contracts", "libs", "services")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    errors = TEXT.partition("## Errors")[2].partition("## Webhooks")[0]
    named = set(re.findall(r"`([a-z]+\.[a-z_]+)`", errors))
    assert len(named) > 15
    assert named - constants == set()


def test_the_commands_are_those_of_the_command_line() -> None:
    told: dict[str, set[str]] = {
        group: set(re.findall(r"`([^`]+)`", commands))
        for group, commands in re.findall(
            r"^\| `(\w+)` \| (`[a-z].*) \|$", TEXT.partition("## The command line")[2], re.M
        )
    }
    points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["entry-points"]
    offered = [name.split(".") for name in points["minutebook.commands"] if "." in name]
    for group in build().registered_groups:
        assert group.typer_instance is not None
        # What was offered since this environment was installed is there after the next installation.
        theirs = {name for above, name in offered if above == group.name}
        assert told[str(group.name)] == set(names(group.typer_instance)) | theirs
    assert set(told) == {
        "runs", "definitions", "effects", "events", "schedules", "decisions", "delegations",
        "notices", "grants", "users", "audit", "deadletters",
    }  # fmt: skip


def names(app: typer.Typer) -> Iterator[str]:
    """The commands of a group, with those of the groups in it."""
    yield from (str(command.name) for command in app.registered_commands)
    for group in app.registered_groups:
        assert group.typer_instance is not None
        yield from (f"{group.name} {name}" for name in names(group.typer_instance))


def test_the_numbers_and_scopes_are_those_of_the_code() -> None:
    assert f"`limit` is 1 to {PAGE_LIMIT_MAX} ({PAGE_LIMIT} when absent)" in TEXT
    assert ", ".join(f"`{scope}`" for scope in SCOPES) in TEXT
    assert '{"status": "duplicate"}' in TEXT
    assert DeliveryAccepted(status="duplicate").model_dump(exclude_none=True) == {"status": "duplicate"}


@pytest.mark.skipif(shutil.which("openssl") is None, reason="the guide signs with openssl, which is not installed here")
def test_the_signature_of_the_guide_is_one_that_is_taken() -> None:
    lines = [line for line in SHELL.splitlines() if line.startswith(("body=", "signature="))]
    script = "\n".join([*lines, 'printf "%s\\n%s" "$signature" "$body"'])
    ran = subprocess.run(
        ["sh", "-euc", script], env={"SECRET": "a secret", "PATH": "/usr/bin:/bin"}, capture_output=True, check=True
    )
    signature, _, body = ran.stdout.partition(b"\n")
    assert signature.decode() == hmac.new(b"a secret", body, hashlib.sha256).hexdigest()
    assert verify_signature(body, f"sha256={signature.decode()}", b"a secret")
    assert normalise("generic", json.loads(body), {}).external_id == "build-4711"

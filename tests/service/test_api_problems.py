"""One problem shape for every error, and limits on what is read."""

import json
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import httpx
import pytest

from contracts.subjects import DEFINITIONS_BYTES_MAX
from libs.telemetry.tracing import recorded
from minutebook.models import Problem
from tests.support.api import PREFIX, World, world
from tests.support.postgres import Database

START = "/definitions/story/runs"


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


def problem(response: httpx.Response, status: int, code: str) -> Problem:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    parsed = Problem.model_validate_json(response.content)
    assert (parsed.status, parsed.code) == (status, code)
    assert parsed.title
    assert parsed.detail
    assert parsed.request_id == response.headers["x-request-id"]
    return parsed


async def test_what_is_not_there(api: World) -> None:
    problem(await api.http.get("/nothing/here"), 404, "route.not_found")
    problem(await api.http.get(f"{PREFIX}/runs/"), 404, "route.not_found")
    refused = await api.call("DELETE", "/runs")
    problem(refused, 405, "method.not_allowed")
    assert "GET" in refused.headers["allow"]
    problem(await api.call("GET", "/runs/not-an-id"), 404, "resource.not_found")
    problem(await api.call("POST", f"/decisions/{uuid4()}/perhaps"), 404, "resource.not_found")


@pytest.mark.parametrize(
    "body, code",
    [
        (b"{", "json.invalid"),
        (b'{"context": {"a": NaN}}', "json.refused"),
        (b'{"context": {"a": 1e999}}', "json.refused"),
        (b'{"context": {"a": 1, "a": 2}}', "json.refused"),
        (b'{"context": {"a": "\\u0000"}}', "json.nul"),
        (b'{"context": {"a": "\\ud800"}}', "json.not_unicode"),
        (b'{"context": ' + b'{"a":' * 80 + b"1" + b"}" * 81, "json.too_deep"),
        (b'{"context": ' + b"9" * 5_000 + b"}", "json.refused"),
        (b"\xff\xfe", "json.not_utf8"),
    ],
)
async def test_json_is_read_strictly(api: World, body: bytes, code: str) -> None:
    answer = await api.call("POST", START, content=body, headers={"content-type": "application/json"})
    problem(answer, 400, code)


async def test_what_is_readable_but_wrong_is_named_by_its_path(api: World) -> None:
    unknown = problem(await api.call("POST", START, json={"contxt": {}}), 422, "request.invalid")
    assert [item.path for item in unknown.errors] == ["contxt"]
    wrong = problem(await api.call("POST", START, json={"context": 5}), 422, "request.invalid")
    assert [item.path for item in wrong.errors] == ["context"]
    assert "context" in wrong.detail
    problem(await api.call("POST", START, json=[]), 422, "request.invalid")
    missing = problem(await api.call("POST", START), 422, "request.invalid")
    assert [item.path for item in missing.errors] == ["body"]
    query = problem(await api.call("GET", "/runs?limit=0&state=flying"), 422, "request.invalid")
    assert [item.path for item in query.errors] == ["query.state.0", "query.limit"]
    header = await api.call("POST", START, json={}, headers={"idempotency-key": "x" * 201})
    assert problem(header, 422, "request.invalid").errors[0].path == "header.Idempotency-Key"


async def test_a_body_must_be_declared_as_json(api: World) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        answer = await api.call("POST", START, content=b'{"context": {}}', headers={"content-type": kind})
        problem(answer, 415, "body.not_json")
    declared = {"content-type": "application/json; charset=utf-8"}
    problem(await api.call("POST", START, content=b'{"contxt": 1}', headers=declared), 422, "request.invalid")


async def test_a_body_past_the_limit_is_refused(api: World) -> None:
    content = b'{"context": {"a": "' + b"x" * api.tools.settings.request_bytes_max + b'"}}'
    declared = {"content-type": "application/json"}
    problem(await api.call("POST", START, content=content, headers=declared), 413, "body.too_large")
    files = {"workflows/story/prompts/draft.md": "x" * DEFINITIONS_BYTES_MAX}
    problem(await api.call("PUT", "/definitions", json={"files": files}), 413, "body.too_large")
    # Within the limit of a body, and still more than the bus carries with the rest of the command.
    almost = {"context": {"a": "x" * (api.tools.settings.request_bytes_max - 200)}}
    problem(await api.call("POST", START, by="dana", json=almost), 413, "body.too_large")


async def test_a_bug_of_ours_shows_nothing_of_it(api: World) -> None:
    async def broken() -> None:
        raise RuntimeError("the password is hunter2")

    api.service.app.get("/broken")(broken)
    answer = await api.http.get("/broken", headers={"x-request-id": "mine-1"})
    shown = problem(answer, 500, "internal")
    assert shown.request_id == "mine-1"
    assert "hunter2" not in answer.text
    assert "RuntimeError" not in answer.text


async def test_the_callers_request_id_is_kept_when_logs_can_carry_it(api: World) -> None:
    kept = await api.http.get("/healthz", headers={"x-request-id": "abc-123.4_5"})
    assert kept.headers["x-request-id"] == "abc-123.4_5"
    for odd in ("", "a b", "x" * 101, 'quote"'):
        minted = await api.http.get("/healthz", headers={"x-request-id": odd})
        assert UUID(minted.headers["x-request-id"])


async def test_a_request_goes_on_in_the_callers_trace(api: World) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with recorded() as exporter:
        answer = await api.call(
            "POST",
            START,
            by="dana",
            json={"context": {"jira_key": "CORE-1"}, "project_id": "core"},
            headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"},
        )
        spans = exporter.get_finished_spans()
    assert answer.status_code == 201, answer.text
    [request] = [span for span in spans if span.name.startswith("api ")]
    assert request.name == f"api POST {PREFIX}/definitions/{{definition_id}}/runs"
    assert {format(span.context.trace_id, "032x") for span in spans if span.context} == {trace}
    row = await api.tools.require_pool().fetchrow(
        "select metadata::text as metadata from workflow_history where type = 'run.created'"
    )
    assert row is not None
    assert json.loads(row["metadata"])["traceparent"].split("-")[1] == trace


ODD = [
    "%00",
    "%ed%a0%80",
    "%ff",
    "'; drop table run_heads; --",
    "a" * 300,
    "../../etc/passwd",
    "{}",
    "%",
    "\u202e",
    "-1",
]


async def test_odd_values_are_refused_or_find_nothing_and_never_break_anything(api: World) -> None:
    run_id = uuid4()
    paths = [
        f"/{place}?{name}={value}"
        for value in (*ODD, "0001-01-01T00:00:00%2B14:00", "9999-12-31T23:59:59-14:00", "1e999", "9" * 30)
        for place, names in (
            ("runs", ("definition", "project", "state", "initiated_by", "created_from", "created_before", "limit")),
            ("runs", ("parent", "context.a", "context.", "context." + "b" * 300)),
            ("events", ("source", "unmatched", "cursor")),
            ("schedules", ("definition", "state", "cursor")),
            ("definitions/story/diff", ("before", "after")),
            ("effects", ("state", "cursor")),
            ("definitions", ("cursor", "limit")),
            ("inbox", ("cursor",)),
        )
        for name in names
    ]
    paths += [f"/{place}/{value}" for value in ODD for place in ("runs", "decisions", "definitions", "events")]
    paths += [f"/runs/{run_id}/artifacts/{value}" for value in ODD]
    for path in paths:
        answer = await api.call("GET", path)
        assert answer.status_code in {200, 404, 422}, (path, answer.text)
    for value in ODD:
        for path in (
            f"/definitions/{value}/runs",
            f"/runs/{run_id}/steps/{value}/retry",
            f"/decisions/{value}/approve",
            f"/runs/{run_id}/steps/{value}/complete",
            f"/runs/{value}/fork",
            f"/definitions/{value}/promote",
            f"/events/{value}/replay",
            f"/schedules/{value}/pause",
        ):
            answer = await api.call("POST", path, json={})
            assert answer.status_code in {404, 405, 422}, (path, answer.text)

"""The SDK's client against the API's description of itself: routes, bodies, parameters and what it makes of answers."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from libs.process.http import listen
from libs.process.http import serve as serve_http
from minutebook.client import ApiError, Client, Unreachable
from minutebook.models import (
    DelegateRequest,
    ForkRequest,
    Problem,
    ReassignRequest,
    RegisterUserRequest,
    RunsFilter,
    StartRunItem,
)
from services.api import openapi, problems
from services.api.routes import ROUTERS
from services.dev.minimal_instance import minimal_instance

RUN = "0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a11"
DECISION = "0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a12"
EVENT = "0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a13"
AT = datetime(2026, 11, 29, tzinfo=UTC)
SCHEDULE = "0193a1f2-7c1e-7d7a-9a51-3f0b8d0c7a14"

CALLS: Mapping[str, tuple[Callable[[Client], Any], str]] = {
    "me": (lambda c: c.me(), "MeView"),
    "start_run": (
        lambda c: c.start_run("hello", {"name": "Ada"}, project_id="core", variant="india", idempotency_key="k"),
        "RunChanged",
    ),
    "start_runs": (
        lambda c: c.start_runs("hello", [StartRunItem(context={"name": "Ada"}, idempotency_key="k")]),
        "RunsStarted",
    ),
    "run": (lambda c: c.run(RUN), "RunView"),
    "runs": (lambda c: c.runs(definition="hello", state="running", project="core"), "RunSummary"),
    "history": (lambda c: c.history(RUN), "HistoryEntry"),
    "artifact": (lambda c: c.artifact(RUN, "draft"), "ArtifactView"),
    "operate": (lambda c: c.operate(RUN, "cancel", "the story was withdrawn"), "RunChanged"),
    "retry_step": (lambda c: c.retry_step(RUN, "implement.backend"), "RunChanged"),
    "complete_step": (
        lambda c: c.complete_step(RUN, "sign", {"signed": True}, comment="Both.", idempotency_key="k"),
        "RunChanged",
    ),
    "restart": (lambda c: c.restart(RUN, idempotency_key="k"), "RunChanged"),
    "fork": (
        lambda c: c.fork(RUN, ForkRequest(from_step="draft", context={"a": 1}), idempotency_key="k"),
        "RunChanged",
    ),
    "bulk": (
        lambda c: c.bulk("cancel", RunsFilter(definition="hello", context={"name": "Ada"}), confirm=3, reason="no"),
        "BulkResult",
    ),
    "effects": (lambda c: c.effects(state="in_doubt"), "EffectView"),
    "notices": (lambda c: c.notices(run=RUN, state=["in_doubt", "failed"], channel="ops"), "NoticeView"),
    "retry_notice": (lambda c: c.retry_notice(EVENT, idempotency_key="k"), "NoticeChanged"),
    "channels": (lambda c: c.channels(), "ChannelView"),
    "effect": (lambda c: c.effect(EVENT), "EffectView"),
    "settle_effect": (
        lambda c: c.settle_effect(EVENT, "landed", arm=1, reference="FERRY-1", comment="Seen.", idempotency_key="k"),
        "EffectSettled",
    ),
    "probe_effect": (lambda c: c.probe_effect(EVENT, idempotency_key="k"), "EffectSettled"),
    "events": (lambda c: c.events(source="jira", unmatched=True), "EventSummary"),
    "event": (lambda c: c.event(EVENT), "EventView"),
    "replay_event": (lambda c: c.replay_event(EVENT, idempotency_key="k"), "EventRouted"),
    "deliver_event": (lambda c: c.deliver_event(EVENT, RUN, "signature", idempotency_key="k"), "EventRouted"),
    "schedules": (lambda c: c.schedules(definition="hello", state="active"), "ScheduleView"),
    "pause_schedule": (lambda c: c.pause_schedule(SCHEDULE), "ScheduleChanged"),
    "resume_schedule": (lambda c: c.resume_schedule(SCHEDULE), "ScheduleChanged"),
    "grants": (lambda c: c.grants(), "GrantView"),
    "give_grant": (
        lambda c: c.give_grant("github", "a token", user="nightly@example.com", expires_at=AT, idempotency_key="k"),
        "GrantView",
    ),
    "revoke_grant": (lambda c: c.revoke_grant(EVENT), "GrantView"),
    "dead_letters": (lambda c: c.dead_letters(), "DeadLetterView"),
    "users": (lambda c: c.users(), "UserView"),
    "register_user": (
        lambda c: c.register_user(RegisterUserRequest(email="mira@example.com", roles=("developer",))),
        "UserView",
    ),
    "deactivate_user": (lambda c: c.deactivate_user(EVENT), "UserView"),
    "user_history": (lambda c: c.user_history(EVENT), "PersonalFact"),
    "diff": (lambda c: c.diff("hello", before="9f86d081", after="60303ae2"), "DefinitionDiff"),
    "promote": (lambda c: c.promote("hello", "9f86d081"), "DefinitionPromoted"),
    "inbox": (lambda c: c.inbox(), "InboxItem"),
    "tasks": (lambda c: c.tasks(), "TaskItem"),
    "decision": (lambda c: c.decision(DECISION), "DecisionView"),
    "decide": (
        lambda c: c.decide(DECISION, "approve", comment="Yes.", revised_artifact={"a": 1}, idempotency_key="k"),
        "DecisionAccepted",
    ),
    "reassign": (
        lambda c: c.reassign(DECISION, ReassignRequest(to_user="lena@example.com"), idempotency_key="k"),
        "DecisionView",
    ),
    "delegations": (lambda c: c.delegations(), "DelegationView"),
    "delegate": (
        lambda c: c.delegate(DelegateRequest(to_user="lena@example.com", ends_at=AT), idempotency_key="k"),
        "DelegationView",
    ),
    "end_delegation": (lambda c: c.end_delegation(EVENT), "DelegationView"),
    "definitions": (lambda c: c.definitions(), "DefinitionSummary"),
    "definition": (lambda c: c.definition("hello"), "DefinitionView"),
    "sync": (lambda c: c.sync({"sources.yaml": "sources: []\n"}), "SyncResult"),
}
MORE_CALLS: tuple[tuple[Callable[[Client], Any], str], ...] = (
    (lambda c: c.start_run("hello", {}), "RunChanged"),
    (lambda c: c.start_run("hello", {}, wait=30), "RunChanged"),
    (lambda c: c.run(RUN, wait=2.5), "RunView"),
    (
        lambda c: c.runs(
            state=["failed", "suspended"],
            initiated_by=RUN,
            parent=RUN,
            created_from=datetime(2026, 11, 29, tzinfo=UTC),
            created_before=datetime(2026, 11, 30, tzinfo=UTC),
            context={"jira_key": "CORE-142"},
        ),
        "RunSummary",
    ),
    (lambda c: c.give_grant("github", "a token"), "GrantView"),
    (lambda c: c.fork(RUN), "RunChanged"),
    (lambda c: c.bulk("retry", RunsFilter()), "BulkResult"),
    (lambda c: c.sync({"sources.yaml": "sources: []\n"}, canary_percent=10), "SyncResult"),
    (lambda c: c.diff("hello"), "DefinitionDiff"),
    (lambda c: c.operate(RUN, "suspend"), "RunChanged"),
    (lambda c: c.operate(RUN, "resume"), "RunChanged"),
    (lambda c: c.decide(DECISION, "request_changes"), "DecisionAccepted"),
    (lambda c: c.decide(DECISION, "answer", answer={"answer": "now"}, shown="0" * 64), "DecisionAccepted"),
)
LEFT_OUT = {
    ("POST", "/api/public/workflows/events/{source}"),  # for the systems that send webhooks
    ("GET", "/healthz"),
    ("GET", "/readyz"),
}


@dataclass
class Described:
    """An API that answers whatever its description promises, and keeps what it was asked."""

    description: dict[str, Any]
    url: str = ""
    asked: list[tuple[str, str]] = field(default_factory=list)
    objections: list[str] = field(default_factory=list)
    cursors: list[str | None] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await (await self._answer(Request(scope, receive)))(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        template = self._template(request.url.path)
        operation = self.description["paths"].get(template, {}).get(request.method.lower())
        if operation is None:
            self.objections.append(f"{request.method} {request.url.path} is not described")
            return JSONResponse({}, status_code=404)
        self.asked.append((request.method, template))
        self._check_parameters(request, operation)
        await self._check_body(request, operation)
        status, answer = next((code, r) for code, r in operation["responses"].items() if code.startswith("2"))
        schema = answer["content"]["application/json"]["schema"]
        return JSONResponse(self._example(schema, request), status_code=int(status))

    def _template(self, path: str) -> str:
        """The path's template; of two that fit the one with fewer parameters."""
        fitting = [t for t in self.description["paths"] if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", t), path)]
        return min(fitting, key=lambda template: template.count("{"), default=path)

    def _check_parameters(self, request: Request, operation: dict[str, Any]) -> None:
        declared = {(p["in"], p["name"].lower()): p["schema"] for p in operation.get("parameters", ())}
        self.objections += [
            f"{request.url.path} has no query parameter {name}"
            for name in request.query_params
            if ("query", name.lower()) not in declared and not _is_of_an_object(name, operation)
        ]
        if "idempotency-key" in request.headers and ("header", "idempotency-key") not in declared:
            self.objections.append(f"{request.url.path} takes no idempotency key")
        limit = request.query_params.get("limit")
        if limit is not None and int(limit) > declared["query", "limit"]["maximum"]:
            self.objections.append(f"{request.url.path} gives no pages of {limit}")

    async def _check_body(self, request: Request, operation: dict[str, Any]) -> None:
        if not await request.body():
            return
        declared = operation.get("requestBody")
        value = await request.json()
        if declared is None:
            if value != {}:
                self.objections.append(f"{request.url.path} takes no body")
            return
        schema = declared["content"]["application/json"]["schema"]
        found = Draft202012Validator(self._whole(schema)).iter_errors(value)
        self.objections += [f"{request.url.path}: {error.message}" for error in found]

    def _example(self, schema: dict[str, Any], request: Request) -> Any:
        """An answer that the schema accepts; of a list a page with one item, and a second page behind it."""
        example: Any = minimal_instance(self._whole(schema))
        named = self.description["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        if "next_cursor" in named["properties"]:
            self.cursors.append(request.query_params.get("cursor"))
            example["items"] = [minimal_instance(self._whole(named["properties"]["items"]["items"]))]
            example["next_cursor"] = None if "cursor" in request.query_params else "what comes next"
        return example

    def _whole(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {**schema, "components": self.description["components"]}


def _is_of_an_object(name: str, operation: dict[str, Any]) -> bool:
    """Whether it is a property of an object that is spread over parameters of its own."""
    patterns = [
        pattern
        for parameter in operation.get("parameters", ())
        if parameter.get("explode")
        for pattern in parameter["schema"].get("patternProperties", ())
    ]
    return any(re.search(pattern, name) for pattern in patterns)


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    app = FastAPI()
    problems.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app.openapi()


@pytest.fixture
async def api(description: dict[str, Any]) -> AsyncIterator[Described]:
    described = Described(description)
    running = await serve_http(described, listen("127.0.0.1", 0), drain=timedelta(seconds=1))
    described.url = running.url
    yield described
    await running.stop()


async def outcome(made: Awaitable[Any] | AsyncIterator[Any]) -> list[Any]:
    return [item async for item in made] if isinstance(made, AsyncIterator) else [await made]


def test_every_method_of_the_client_is_tried() -> None:
    assert {name for name in dir(Client) if not name.startswith("_")} == set(CALLS)


@pytest.mark.parametrize("call, model", [*CALLS.values(), *MORE_CALLS])
async def test_the_client_asks_what_is_described_and_reads_what_is_answered(
    api: Described, call: Callable[[Client], Any], model: str
) -> None:
    async with Client(api.url, "any") as client:
        answers = await outcome(call(client))
    assert api.objections == []
    assert {type(answer).__name__ for answer in answers} == {model}
    if api.cursors:
        assert api.cursors == [None, "what comes next"]
        assert len(answers) == 2


async def test_what_the_client_leaves_out_is_left_out_on_purpose(api: Described) -> None:
    async with Client(api.url, "any") as client:
        for call, _ in (*CALLS.values(), *MORE_CALLS):
            await outcome(call(client))
    described = {
        (method.upper(), path) for path, operations in api.description["paths"].items() for method in operations
    }
    assert described - set(api.asked) == LEFT_OUT


async def test_a_problem_is_raised_with_its_code() -> None:
    told = Problem(
        title="Conflict", status=409, code="decision.answered", detail="priya answered", extra={"by": "priya"}
    )

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            content = told.model_dump(mode="json") if scope["path"].endswith("/me") else "<html>a proxy</html>"
            await JSONResponse(content, status_code=told.status)(scope, receive, send)

    running = await serve_http(refusing, listen("127.0.0.1", 0), drain=timedelta(seconds=1))
    async with Client(running.url, "any") as client:
        with pytest.raises(ApiError, match=r"decision\.answered") as refused:
            await client.me()
        assert refused.value.problem == told
        with pytest.raises(ApiError) as odd:
            await client.run(RUN)
        assert (odd.value.problem.code, odd.value.problem.status) == ("http.error", 409)
        await running.stop()
        with pytest.raises(Unreachable, match=re.escape(running.url)):
            await client.me()

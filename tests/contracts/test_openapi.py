"""The API's description of itself: complete, valid in its references, and one problem shape."""

from typing import Any

import pytest
from fastapi import FastAPI
from jsonschema import Draft202012Validator

from minutebook.models import Problem
from services.api import openapi, problems
from services.api.routes import ROUTERS, TAGS

OPEN = {"/healthz", "/readyz"}
WEBHOOK = "/api/public/workflows/events/{source}"


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    app = FastAPI(title="Minutebook", version="0", description=openapi.DESCRIPTION, openapi_tags=TAGS)
    problems.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    return app.openapi()


def operations(description: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, found in description["paths"].items()
        for method, operation in found.items()
    ]


def test_the_documented_paths_are_there(description: dict[str, Any]) -> None:
    prefix = "/api/public/admin/workflows"
    assert {(method, path) for method, path, _ in operations(description)} == {
        ("POST", f"{prefix}/definitions/{{definition_id}}/runs"),
        ("POST", f"{prefix}/definitions/{{definition_id}}/runs:batch"),
        ("GET", f"{prefix}/definitions"),
        ("GET", f"{prefix}/definitions/{{definition_id}}"),
        ("PUT", f"{prefix}/definitions"),
        ("GET", f"{prefix}/definitions/{{definition_id}}/diff"),
        ("POST", f"{prefix}/definitions/{{definition_id}}/promote"),
        ("GET", f"{prefix}/runs"),
        ("GET", f"{prefix}/runs/{{run_id}}"),
        ("GET", f"{prefix}/runs/{{run_id}}/history"),
        ("GET", f"{prefix}/runs/{{run_id}}/artifacts/{{step}}"),
        ("POST", f"{prefix}/runs/{{run_id}}/cancel"),
        ("POST", f"{prefix}/runs/{{run_id}}/suspend"),
        ("POST", f"{prefix}/runs/{{run_id}}/resume"),
        ("POST", f"{prefix}/runs/{{run_id}}/steps/{{step}}/retry"),
        ("POST", f"{prefix}/runs/{{run_id}}/steps/{{step}}/complete"),
        ("POST", f"{prefix}/runs/{{run_id}}/restart"),
        ("POST", f"{prefix}/runs/{{run_id}}/fork"),
        ("POST", f"{prefix}/runs:bulk"),
        ("GET", f"{prefix}/events"),
        ("GET", f"{prefix}/events/{{event_id}}"),
        ("POST", f"{prefix}/events/{{event_id}}/replay"),
        ("POST", f"{prefix}/events/{{event_id}}/deliver"),
        ("GET", f"{prefix}/schedules"),
        ("POST", f"{prefix}/schedules/{{schedule_id}}/pause"),
        ("POST", f"{prefix}/schedules/{{schedule_id}}/resume"),
        ("GET", f"{prefix}/inbox"),
        ("GET", f"{prefix}/tasks"),
        ("GET", f"{prefix}/decisions/{{decision_id}}"),
        ("POST", f"{prefix}/decisions/{{decision_id}}/{{outcome}}"),
        ("POST", f"{prefix}/decisions/{{decision_id}}/reassign"),
        ("GET", f"{prefix}/delegations"),
        ("POST", f"{prefix}/delegations"),
        ("DELETE", f"{prefix}/delegations/{{delegation_id}}"),
        ("GET", f"{prefix}/effects"),
        ("GET", f"{prefix}/notices"),
        ("POST", f"{prefix}/notices/{{notice_id}}/retry"),
        ("GET", f"{prefix}/channels"),
        ("GET", f"{prefix}/effects/{{effect_id}}"),
        ("POST", f"{prefix}/effects/{{effect_id}}/settle"),
        ("POST", f"{prefix}/effects/{{effect_id}}/probe"),
        ("GET", f"{prefix}/grants"),
        ("POST", f"{prefix}/grants"),
        ("DELETE", f"{prefix}/grants/{{grant_id}}"),
        ("GET", f"{prefix}/users"),
        ("POST", f"{prefix}/users"),
        ("POST", f"{prefix}/users/{{user_id}}/deactivate"),
        ("GET", f"{prefix}/users/{{user_id}}/history"),
        ("GET", f"{prefix}/dead-letters"),
        ("GET", f"{prefix}/me"),
        ("POST", WEBHOOK),
        ("GET", "/healthz"),
        ("GET", "/readyz"),
    }


def test_every_operation_says_what_it_does_and_what_it_answers(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        where = f"{method} {path}"
        assert operation["description"], where
        assert operation["tags"], where
        success = [code for code in operation["responses"] if code.startswith("2")]
        assert success, where
        for code in success:
            schema = operation["responses"][code]["content"]["application/json"]["schema"]
            assert schema.get("$ref"), f"{where} {code} has no model"


def test_every_error_is_the_one_problem(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        if path in OPEN:
            continue
        errors = {code: response for code, response in operation["responses"].items() if code >= "4"}
        assert {"401", "403", "503"} <= errors.keys(), f"{method} {path}"
        for code, response in errors.items():
            schema = response["content"]["application/problem+json"]["schema"]
            assert schema == {"$ref": "#/components/schemas/Problem"}, f"{method} {path} {code}"
        if method in {"POST", "PUT"}:
            assert {"400", "413", "422"} <= errors.keys(), f"{method} {path}"
    assert "HTTPValidationError" not in description["components"]["schemas"]
    assert description["components"]["schemas"]["Problem"]["properties"]["code"]["description"]


def test_every_operation_but_health_names_its_security(description: dict[str, Any]) -> None:
    schemes = description["components"]["securitySchemes"]
    assert schemes["token"]["scheme"] == "bearer"
    assert schemes["api_key"]["name"] == "x-api-key"
    for method, path, operation in operations(description):
        found = operation.get("security", [])
        if path in OPEN:
            assert found == []
            continue
        assert {"token": []} in found, f"{method} {path}"
        assert {"api_key": []} in found, f"{method} {path}"
        assert ({} in found) == (path == WEBHOOK)


def test_every_reference_leads_somewhere(description: dict[str, Any]) -> None:
    schemas = description["components"]["schemas"]
    todo: list[Any] = [description]
    seen = 0
    while todo:
        item = todo.pop()
        if isinstance(item, dict):
            ref = item.get("$ref")
            if isinstance(ref, str):
                seen += 1
                assert ref.startswith("#/components/schemas/")
                assert ref.rsplit("/", 1)[1] in schemas, ref
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)
    assert seen > 50


def test_what_callers_send_has_an_example(description: dict[str, Any]) -> None:
    bodies = {
        operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        for _, path, operation in operations(description)
        if "requestBody" in operation and path != WEBHOOK
    }
    assert {"StartRunRequest", "DecideRequest", "ForkRequest", "BulkRequest", "PromoteRequest"} <= bodies
    for name in (*bodies, "StartRunItem"):
        schema = description["components"]["schemas"][name]
        assert schema["examples"], name
        for example in schema["examples"]:
            Draft202012Validator({**schema, "components": description["components"]}).validate(example)


def test_every_error_has_an_example_of_its_status(description: dict[str, Any]) -> None:
    for method, path, operation in operations(description):
        for code, response in operation["responses"].items():
            if code >= "4" and path not in OPEN:
                example = response["content"]["application/problem+json"]["example"]
                assert Problem.model_validate(example).status == int(code), f"{method} {path}"


def test_every_property_of_an_answer_that_counts_names_its_unit(description: dict[str, Any]) -> None:
    for name, schema in description["components"]["schemas"].items():
        for key in schema.get("properties", {}):
            assert not key.endswith(("_cost", "_duration", "_timeout", "_ms")), f"{name}.{key}"

"""What a model is told of a schema that the provider cannot enforce in full, and that the scripted model heeds it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from contracts.base import JsonObject
from contracts.requests import AttemptRequest
from libs.config import Secrets, Settings
from libs.ids import mint
from services.dev.http import serve
from services.dev.scripted_model import scripted_model
from services.runner.executors import AnthropicExecutor, Failure, Produced, Scope
from services.runner.executors.fit import misfits
from services.runner.executors.wire import WHOLE_SCHEMA, in_words, on_the_wire
from tests.support.messages import Answer, Provider

ENFORCED: JsonObject = {
    "type": "object",
    "required": ["title"],
    "additionalProperties": False,
    "properties": {"title": {"type": "string"}, "size": {"enum": ["small", "large"]}},
}
BOUNDED: JsonObject = {
    "type": "object",
    "required": ["title", "version", "points", "due", "tags"],
    "additionalProperties": False,
    "properties": {
        "title": {"type": "string", "minLength": 40, "maxLength": 60},
        "version": {"type": "string", "pattern": r"^v\d+\.\d+\.\d+$"},
        "points": {"type": "integer", "minimum": 3, "maximum": 8},
        "due": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 2, "uniqueItems": True},
    },
}


def request(schema: JsonObject) -> AttemptRequest:
    return AttemptRequest(
        run_id=mint(),
        definition_id="mine",
        step="draft",
        round=1,
        attempt=1,
        prompt="Write.",
        context={},
        output_schema=schema,
        model=None,
        budget_microdollars=None,
        deadline_seconds=30.0,
    )


async def execute(url: str, schema: JsonObject) -> Produced | Failure:
    settings = Settings(postgres_dsn="unused", nats_url="unused", anthropic_base_url=url)
    executor = AnthropicExecutor(settings, Secrets(overrides={"anthropic_api_key": "any"}), retries=0)
    try:
        return await executor.execute(request(schema), scope=Scope(attempt_id=mint(), claim=mint()))
    finally:
        await executor.close()


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    running = Provider()
    await running.start()
    yield running
    await running.stop()


async def system_prompt(provider: Provider, schema: JsonObject) -> str:
    provider.answers.extend([Answer("{}"), Answer("{}")])
    await execute(provider.url, schema)
    told: set[str] = {body["system"] for body in provider.requests}
    assert len(told) == 1, "a correction is asked for under the same rules"
    return told.pop()


async def test_what_the_provider_enforces_is_not_told_again(provider: Provider) -> None:
    assert WHOLE_SCHEMA not in await system_prompt(provider, ENFORCED)


async def test_what_it_cannot_enforce_is_told_whole(provider: Provider) -> None:
    prompt = await system_prompt(provider, BOUNDED)
    _, told = prompt.split(f"{WHOLE_SCHEMA}\n\n```json\n")
    assert json.loads(told.removesuffix("\n```")) == BOUNDED
    sent = provider.requests[0]["output_config"]["format"]["schema"]
    assert "minLength" not in sent["properties"]["title"]


@pytest.mark.parametrize("schema", [ENFORCED, BOUNDED])
async def test_the_scripted_model_answers_a_schema_that_it_was_never_given_rules_for(schema: JsonObject) -> None:
    running = await serve(scripted_model({}).app)
    outcome = await execute(running.url, schema)
    await running.stop()
    assert isinstance(outcome, Produced)
    assert misfits(outcome.output, schema) is None
    assert outcome.turns == 1


@pytest.mark.parametrize(
    "part",
    [
        {"minLength": 1},
        {"description": "a title", "maxLength": 9},
        {"type": "string", "enum": ["a", {"not": "plain"}]},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
    ],
)
def test_each_loss_is_noticed(part: dict[str, Any]) -> None:
    assert in_words({"type": "object", "properties": {"a": {"type": "string", **part}}}) is not None


def test_objects_that_the_wire_closes_lose_nothing_when_they_say_nothing_of_others() -> None:
    assert in_words({"type": "object", "properties": {"a": {"type": "object"}}}) is None
    assert in_words({"type": "object", "additionalProperties": {"type": "string"}}) is not None
    assert in_words(None) is None


def test_a_schema_cannot_close_its_fence() -> None:
    words = in_words({"type": "object", "description": "put it in ```json fences ````", "minProperties": 1})
    assert words is not None
    assert words.startswith(f"{WHOLE_SCHEMA}\n\n`````json\n")
    assert words.endswith("\n`````")


def test_a_schema_that_cannot_be_put_on_the_wire_goes_as_it_is() -> None:
    odd: JsonObject = {"type": "object", "properties": {"a": {"description": "anything"}}}
    assert on_the_wire(odd) == odd

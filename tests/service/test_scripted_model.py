"""The scripted model, asked by the provider's own client."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
import pytest_asyncio
from anthropic import AsyncAnthropic
from jsonschema import Draft202012Validator

from contracts.base import JsonValue
from contracts.errors import Malformed
from services.dev.http import RunningHttp, serve
from services.dev.minimal_instance import minimal_instance
from services.dev.scripted_model import HEADER_PREFIX, ScriptedModel, scripted_model
from services.dev.scripts import CallScope, Rule, ScriptedError, load_scripts

SCHEMA: dict[str, object] = {
    "type": "object",
    "required": ["summary", "findings"],
    "properties": {
        "summary": {"type": "string"},
        "findings": {
            "type": "object",
            "required": ["blocking"],
            "properties": {"blocking": {"type": "integer", "minimum": 0}},
        },
    },
}
RULES = [
    Rule(output={"for": "any"}),
    Rule(step="review", output={"for": "review"}, input_tokens=900, output_tokens=80),
    Rule(step="review", round=2, output={"for": "review again"}),
    Rule(step="review", round=2, attempt=2, error=ScriptedError(status=529, type="overloaded_error", message="busy")),
    Rule(step="backend", output={"for": "a branch: ünïcode"}),
    Rule(step="wrong", text="no JSON at all"),
]


@pytest.fixture
def model() -> ScriptedModel:
    return scripted_model({"core-dev": RULES})


@pytest_asyncio.fixture
async def server(model: ScriptedModel) -> AsyncIterator[RunningHttp]:
    running = await serve(model.app)
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def client(server: RunningHttp) -> AsyncIterator[AsyncAnthropic]:
    async with AsyncAnthropic(base_url=server.url, api_key="any", max_retries=0) as connected:
        yield connected


def request(
    step: str | None = None, *, definition: str = "core-dev", round_: int | None = None, attempt: int | None = None
) -> dict[str, Any]:
    scope = {"definition": definition, "step": step, "round": round_, "attempt": attempt}
    headers = {f"{HEADER_PREFIX}{name}": str(value) for name, value in scope.items() if value is not None}
    return {
        "model": "claude-test",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": "What do you think of it?"}],
        "extra_headers": headers,
    }


def structured() -> dict[str, Any]:
    return {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}


def text(message: anthropic.types.Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


@pytest.mark.parametrize(
    ("step", "round_", "answer"),
    [
        (None, None, "any"),
        ("design", 1, "any"),
        ("review", 1, "review"),
        ("review", 2, "review again"),
        ("implement.backend", None, "a branch: ünïcode"),
    ],
)
async def test_the_most_specific_rule_answers(
    client: AsyncAnthropic, step: str | None, round_: int | None, answer: str
) -> None:
    message = await client.messages.create(**request(step, round_=round_), **structured())
    assert json.loads(text(message)) == {"for": answer}
    assert message.stop_reason == "end_turn"
    assert message.model == "claude-test"


async def test_tokens_are_the_scripts_else_estimated(client: AsyncAnthropic) -> None:
    scripted = await client.messages.create(**request("review"))
    assert (scripted.usage.input_tokens, scripted.usage.output_tokens) == (900, 80)
    estimated = await client.messages.create(**request())
    assert (estimated.usage.input_tokens, estimated.usage.output_tokens) == (6, 4)
    counted = await client.messages.count_tokens(
        model="claude-test", messages=[{"role": "user", "content": "What do you think of it?"}]
    )
    assert counted.input_tokens == estimated.usage.input_tokens


async def test_streaming_gives_the_real_sequence_and_the_same_message(client: AsyncAnthropic) -> None:
    kinds = []
    async with client.messages.stream(**request("implement.backend"), **structured()) as stream:
        async for event in stream:
            kinds.append(event.type)  # noqa: PERF401 - the stream must be read inside its block
        message = await stream.get_final_message()
    raw = [kind for kind in kinds if kind not in {"text", "ping"}]
    assert raw[:2] == ["message_start", "content_block_start"]
    assert raw[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(raw[2:-3]) == {"content_block_delta"}
    assert json.loads(text(message)) == {"for": "a branch: ünïcode"}
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 1


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_scripted_error_is_the_providers_error(client: AsyncAnthropic, streaming: bool) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        await client.messages.create(**request("review", round_=2, attempt=2), stream=streaming)
    assert caught.value.status_code == 529
    assert caught.value.body == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "busy"},
        "request_id": caught.value.request_id,
    }


async def test_a_script_can_be_wrong_on_purpose(client: AsyncAnthropic) -> None:
    assert text(await client.messages.create(**request("wrong"), **structured())) == "no JSON at all"


async def test_an_answer_longer_than_allowed_is_cut_off(client: AsyncAnthropic) -> None:
    message = await client.messages.create(**{**request("review"), "max_tokens": 40})
    assert message.stop_reason == "max_tokens"
    assert message.usage.output_tokens == 40
    assert text(message) == '{"for": '


async def test_without_a_rule_the_schema_is_answered(client: AsyncAnthropic) -> None:
    message = await client.messages.create(**request("new", definition="somebodys-own"), **structured())
    assert json.loads(text(message)) == {"summary": "Example summary", "findings": {"blocking": 0}}
    plain = await client.messages.create(**request("new", definition="somebodys-own"))
    assert "scripted model" in text(plain)


async def test_calls_are_counted_by_scope(client: AsyncAnthropic, model: ScriptedModel) -> None:
    for _ in range(2):
        await client.messages.create(**request("review", round_=1, attempt=1))
    assert model.calls == {CallScope("core-dev", "review", 1, 1): 2}


async def test_a_credential_is_needed_and_any_will_do(server: RunningHttp) -> None:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(base_url=server.url) as http:
        assert (await http.get("/healthz")).json() == {"status": "ok"}
        for headers, status in (
            ({}, 401),
            ({"x-api-key": ""}, 401),
            ({"authorization": "Bearer"}, 401),
            ({"authorization": "Bearer x"}, 200),
            ({"x-api-key": "x"}, 200),
        ):
            answer = await http.post("/v1/messages", json=body, headers=headers)
            assert answer.status_code == status
            assert answer.headers["request-id"]
        refused = (await http.post("/v1/messages", json=body)).json()
        assert refused["type"] == "error"
        assert refused["error"]["type"] == "authentication_error"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "is not JSON"),
        (b"[]", "body"),
        (b'{"model": "m", "model": "m"}', "repeated"),
        (b'{"model": "m", "messages": [{"role": "user", "content": "x"}]}', "max_tokens"),
        (b'{"model": "m", "max_tokens": 0, "messages": [{"role": "user", "content": "x"}]}', "max_tokens"),
        (b'{"model": "m", "max_tokens": 1, "messages": []}', "messages"),
        (
            b'{"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "x"}],'
            b' "output_config": {"format": {"type": "json_schema", "schema": {"type": "nonsense"}}}}',
            "not a JSON Schema",
        ),
    ],
)
async def test_what_cannot_be_read_is_an_invalid_request(server: RunningHttp, body: bytes, says: str) -> None:
    async with httpx.AsyncClient(base_url=server.url) as http:
        answer = await http.post("/v1/messages", content=body, headers={"x-api-key": "x"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
    assert says in answer.json()["error"]["message"]


def test_scripts_are_found_by_definition_and_errors_name_the_file(tmp_path: Path) -> None:
    script = tmp_path / "workflows/hello/demo/model.json"
    script.parent.mkdir(parents=True)
    script.write_text('[{"step": "greet", "round": null, "output": {"text": "hello"}}]')
    assert load_scripts(tmp_path) == {"hello": (Rule(step="greet", output={"text": "hello"}),)}
    assert load_scripts(tmp_path / "nowhere") == {}
    script.write_text('[{"step": "greet", "outptu": {}}]')
    with pytest.raises(Malformed) as caught:
        load_scripts(tmp_path)
    assert str(script) in caught.value.message
    script.write_text('{"greet": [{"output": "hello"}]}')
    with pytest.raises(Malformed, match="must be a list of rules, such as"):
        load_scripts(tmp_path)


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        {"type": "array", "items": {"type": "integer", "minimum": 3}, "minItems": 3, "uniqueItems": True},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"const": 4}}},
        {"anyOf": [{"type": "object", "required": ["x"], "properties": {"x": {"type": "boolean"}}}, {"type": "null"}]},
        {"allOf": [{"type": "object", "required": ["a"]}, {"required": ["b"], "properties": {"b": {"type": "null"}}}]},
        {"type": "string", "pattern": "^[A-Z]+-[0-9]+$"},
        {"type": "string", "minLength": 40, "maxLength": 50},
        {"type": "string", "maxLength": 3},
        {"type": ["null", "number"], "exclusiveMinimum": 2, "multipleOf": 5},
        {"type": "integer", "maximum": -3},
        {"enum": ["low", "high"]},
        {"type": "object", "minProperties": 1, "properties": {"at": {"type": "string", "format": "date-time"}}},
        {"type": "array", "contains": {"const": "x"}},
        {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {"up": {"$ref": "#/$defs/tree"}}}}},
        True,
    ],
)
def test_a_minimal_instance_is_accepted_by_its_schema(schema: Any) -> None:
    instance = minimal_instance(schema) if isinstance(schema, dict) else None
    Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER).validate(instance)


@pytest.mark.parametrize(
    "schema", [{"allOf": [{"$ref": "#"}]}, {"$ref": "#"}, {"required": ["a"], "properties": {"a": {"$ref": "#"}}}]
)
def test_a_schema_that_never_ends_does(schema: dict[str, JsonValue]) -> None:
    minimal_instance(schema)

"""A model that answers from scripts, over the provider's own Messages API. For the demo, the tests and newcomers.

Everything round it is real: client, gateway, streaming, validation. Which rule answers is read from the request's
scope headers. Where no rule fits and the request asks for structured output, the answer is a small object that its
schema accepts, the whole schema that the system prompt tells where there is one; so a definition that somebody has just
written runs at once under `minutebook dev`. Without a schema it is a short text. Such answers are placeholders and read
like it.
"""

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from contracts.errors import Malformed
from libs import canonical
from services.dev.minimal_instance import minimal_instance
from services.dev.scripts import CallScope, Rule, Scripts, choose
from services.runner.executors.wire import WHOLE_SCHEMA

HEADER_PREFIX: Final = "x-minutebook-scope-"

_BODY_BYTES_MAX: Final = 32 << 20  # the provider's own limit
_CHUNK_CHARS: Final = 40
_CHARS_PER_TOKEN: Final = 4
_WHOLE_SCHEMA: Final = re.compile(
    re.escape(WHOLE_SCHEMA) + r"\s+(?P<fence>`{3,})json\n(?P<schema>.*?)\n(?P=fence)", re.DOTALL
)


class _Format(BaseModel):
    type: Literal["json_schema"]
    json_schema: dict[str, JsonValue] = Field(alias="schema")

    @field_validator("json_schema")
    @classmethod
    def _is_a_schema(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        try:
            Draft202012Validator.check_schema(value)
        except SchemaError as error:
            raise ValueError(f"not a JSON Schema: {error.message}") from error
        return value


class _OutputConfig(BaseModel):
    format: _Format | None = None


class _Turn(BaseModel):
    role: Literal["user", "assistant"]
    content: str | list[dict[str, JsonValue]]


class _Prompt(BaseModel):
    """The part of a request that both routes share; what is not looked at is let through, as new fields come often."""

    model_config = ConfigDict(extra="allow")

    model: str = Field(min_length=1)
    messages: list[_Turn] = Field(min_length=1)
    system: str | list[dict[str, JsonValue]] = ""
    tools: list[dict[str, JsonValue]] = Field(default_factory=list)
    output_config: _OutputConfig | None = None

    @property
    def input_tokens(self) -> int:
        texts = [self.system, *(turn.content for turn in self.messages), *self.tools]
        return _tokens("".join(text if isinstance(text, str) else json.dumps(text) for text in texts))


class _MessageRequest(_Prompt):
    max_tokens: int = Field(ge=1)
    stream: bool = False


_P = TypeVar("_P", bound=_Prompt)


class _Refusal(Exception):
    """An answer in the provider's error shape."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


@dataclass(frozen=True, slots=True)
class _Answer:
    """A message, before it is written whole or in pieces."""

    id: str
    model: str
    text: str
    stop_reason: Literal["end_turn", "max_tokens"]
    input_tokens: int
    output_tokens: int


@dataclass(slots=True)
class ScriptedModel:
    """The model: serve `app`. `scripts` may be replaced at any time; `calls` counts the requests of each scope."""

    scripts: Scripts
    calls: Counter[CallScope] = field(default_factory=Counter)
    app: Starlette = field(init=False)

    def __post_init__(self) -> None:
        self.app = Starlette(
            routes=[
                Route("/healthz", _healthz),
                Route("/v1/messages", self._messages, methods=["POST"]),
                Route("/v1/messages/count_tokens", self._count_tokens, methods=["POST"]),
            ],
            exception_handlers={_Refusal: _refused},
        )

    async def _messages(self, request: Request) -> Response:
        _authenticate(request)
        asked = await _read(request, _MessageRequest)
        scope = _scope(request)
        self.calls[scope] += 1
        rule = choose(self.scripts.get(scope.definition or "", ()), scope)
        if rule is not None:
            await asyncio.sleep(rule.delay_seconds)
            if rule.error is not None:
                raise _Refusal(rule.error.status, rule.error.type, rule.error.message)
        answer = _answer(asked, rule)
        if asked.stream:
            return StreamingResponse(
                _events(answer), media_type="text/event-stream", headers={"cache-control": "no-cache", **_request_id()}
            )
        return JSONResponse(_message(answer), headers=_request_id())

    async def _count_tokens(self, request: Request) -> Response:
        _authenticate(request)
        asked = await _read(request, _Prompt)
        return JSONResponse({"input_tokens": asked.input_tokens}, headers=_request_id())


def scripted_model(scripts: Scripts) -> ScriptedModel:
    """Make the model that answers from these rules, by definition id."""
    return ScriptedModel(scripts)


def _answer(asked: _MessageRequest, rule: Rule | None) -> _Answer:
    """Write the answer; one that is longer than the request allows is cut off there, as a real model's is."""
    text = _text(asked, rule)
    length = rule.output_tokens if rule is not None and rule.output_tokens is not None else _tokens(text)
    fits = length <= asked.max_tokens
    return _Answer(
        id=f"msg_scripted_{secrets.token_hex(12)}",
        model=asked.model,
        text=text if fits else text[: len(text) * asked.max_tokens // length],
        stop_reason="end_turn" if fits else "max_tokens",
        input_tokens=rule.input_tokens if rule is not None and rule.input_tokens is not None else asked.input_tokens,
        output_tokens=min(length, asked.max_tokens),
    )


def _text(asked: _MessageRequest, rule: Rule | None) -> str:
    wanted = asked.output_config.format if asked.output_config else None
    if rule is not None:
        return rule.text if rule.text is not None else json.dumps(rule.output, ensure_ascii=False)
    if wanted is not None:
        return json.dumps(minimal_instance(_told(asked.system) or wanted.json_schema), ensure_ascii=False)
    return "This is the scripted model. No rule of its script fits this request."


def _told(system: str | list[dict[str, JsonValue]]) -> dict[str, JsonValue] | None:
    """The whole schema that a system prompt tells in words, since the wire's says less; None where it tells none."""
    text = system if isinstance(system, str) else "\n\n".join(str(block.get("text", "")) for block in system)
    found = _WHOLE_SCHEMA.search(text)
    try:
        value = (
            canonical.parse(found["schema"].encode(), what="the schema", bytes_max=_BODY_BYTES_MAX) if found else None
        )
    except Malformed:
        return None
    return value if isinstance(value, dict) else None


async def _events(answer: _Answer) -> AsyncIterator[str]:
    """The provider's order of events: the message without content, one block in pieces, how it ended."""
    start = {**_message(answer), "content": [], "stop_reason": None}
    start["usage"] = {**_usage(answer), "output_tokens": 1}
    yield _event("message_start", message=start)
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _event("ping")
    for place in range(0, len(answer.text), _CHUNK_CHARS):
        piece = answer.text[place : place + _CHUNK_CHARS]
        yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield _event("content_block_stop", index=0)
    delta = {"stop_reason": answer.stop_reason, "stop_sequence": None}
    yield _event("message_delta", delta=delta, usage=_usage(answer))
    yield _event("message_stop")


def _event(kind: str, **rest: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **rest}, ensure_ascii=False)}\n\n"


def _message(answer: _Answer) -> dict[str, Any]:
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [{"type": "text", "text": answer.text}],
        "stop_reason": answer.stop_reason,
        "stop_sequence": None,
        "usage": _usage(answer),
    }


def _usage(answer: _Answer) -> dict[str, int]:
    return {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": answer.output_tokens,
    }


def _tokens(text: str) -> int:
    """An estimate, at four characters a token; never zero, as the provider's never is."""
    return max(1, -(-len(text) // _CHARS_PER_TOKEN))


def _authenticate(request: Request) -> None:
    bearer = request.headers.get("authorization", "")
    scheme, _, credential = bearer.partition(" ")
    if not (request.headers.get("x-api-key", "").strip() or (scheme.lower() == "bearer" and credential.strip())):
        raise _Refusal(401, "authentication_error", "x-api-key header is required")


async def _read(request: Request, kind: type[_P]) -> _P:
    try:
        value = canonical.parse(await request.body(), what="the request's body", bytes_max=_BODY_BYTES_MAX)
        return kind.model_validate(value)
    except ClientDisconnect as error:  # a runner that was killed, say: nobody reads the answer
        raise _Refusal(400, "invalid_request_error", "the caller went away before its request was whole") from error
    except Malformed as error:
        if error.status == 413:
            raise _Refusal(413, "request_too_large", error.message) from error
        raise _Refusal(400, "invalid_request_error", error.message) from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise _Refusal(400, "invalid_request_error", f"{where}: {first['msg']}") from error


def _scope(request: Request) -> CallScope:
    headers = request.headers
    return CallScope(
        definition=headers.get(f"{HEADER_PREFIX}definition"),
        step=headers.get(f"{HEADER_PREFIX}step"),
        round=_whole(headers, "round"),
        attempt=_whole(headers, "attempt"),
    )


def _whole(headers: Mapping[str, str], name: str) -> int | None:
    value = headers.get(f"{HEADER_PREFIX}{name}")
    if value is None:
        return None
    if not value.isascii() or not value.isdigit():
        raise _Refusal(400, "invalid_request_error", f"{HEADER_PREFIX}{name}: a whole number is needed")
    return int(value)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, _Refusal)
    ids = _request_id()
    body = {"type": "error", "error": {"type": error.kind, "message": error.message}, "request_id": ids["request-id"]}
    return JSONResponse(body, status_code=error.status, headers=ids)


def _request_id() -> dict[str, str]:
    return {"request-id": f"req_scripted_{secrets.token_hex(12)}"}


async def _healthz(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


__all__ = ["HEADER_PREFIX", "ScriptedModel", "scripted_model"]

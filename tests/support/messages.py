"""A model provider whose answers a test queues one by one, broken ones too: what the scripted model does not do."""

import json
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from services.dev.http import RunningHttp, serve


@dataclass(frozen=True, slots=True)
class Answer:
    """One streamed answer. `cut` ends the stream before the message ends; `error` ends it with an error event."""

    text: str = ""
    stop_reason: str = "end_turn"
    stop_details: dict[str, Any] | None = None
    input_tokens: int = 100
    output_tokens: int = 50
    cut: bool = False
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer in the provider's error shape."""

    status: int
    type: str = "api_error"
    message: str = "no"


@dataclass(slots=True)
class Provider:
    """The running provider. `requests` are the bodies, `headers` the headers of what it was asked, in order."""

    answers: deque[Answer | Refusal] = field(default_factory=deque)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""
    _http: RunningHttp | None = None

    async def start(self) -> None:
        app = Starlette(routes=[Route("/v1/messages", self._messages, methods=["POST"])])
        self._http = await serve(app)
        self.url = self._http.url

    async def stop(self) -> None:
        if self._http is not None:
            await self._http.stop()

    async def _messages(self, request: Request) -> Response:
        self.requests.append(await request.json())
        self.headers.append(dict(request.headers))
        answer = self.answers.popleft()
        if isinstance(answer, Refusal):
            error = {"type": answer.type, "message": answer.message}
            return JSONResponse({"type": "error", "error": error}, status_code=answer.status)
        return StreamingResponse(_events(answer), media_type="text/event-stream")


async def _events(answer: Answer) -> AsyncIterator[str]:
    usage = {"input_tokens": answer.input_tokens, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield _event("message_start", message=message)
    yield _event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield _event("content_block_delta", index=0, delta={"type": "text_delta", "text": answer.text})
    if answer.error is not None:
        yield _event("error", error={"type": answer.error, "message": "broke off"})
        return
    if answer.cut:
        return
    yield _event("content_block_stop", index=0)
    delta = {"stop_reason": answer.stop_reason, "stop_sequence": None, "stop_details": answer.stop_details}
    yield _event("message_delta", delta=delta, usage={"output_tokens": answer.output_tokens})
    yield _event("message_stop")


def _event(kind: str, **rest: object) -> str:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **rest})}\n\n"

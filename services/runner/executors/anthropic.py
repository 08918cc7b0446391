"""A loop over the Messages API: ask for the step's artefact, check it, show a misfit once, within hard limits."""

import asyncio
import json
import re
from dataclasses import replace
from typing import Final

from anthropic import AsyncAnthropic
from anthropic.types import Message, MessageParam

from contracts.base import JsonObject
from contracts.errors import Malformed, Unavailable
from contracts.requests import AttemptRequest
from libs.canonical import parse
from libs.config import Secrets, Settings
from libs.config.scrubbing import scrubbed
from libs.pricing import PriceTable
from libs.telemetry.logs import get_logger
from minutebook.models.states import FailureClass
from services.runner.executors.fit import misfits
from services.runner.executors.meter import Meter
from services.runner.executors.port import OUTPUT_BYTES_MAX, Failure, Produced, Scope
from services.runner.executors.provider import RETRIES, Call, ProviderTrouble, Seen, new_client, send
from services.runner.executors.wire import in_words

CORRECTIONS_MAX: Final = 1
"""How often a misfit is shown to the model before it is `output_invalid`."""

_SYSTEM: Final = (
    "You carry out one step of a workflow. Your whole answer is the artefact that the step hands on: one JSON object, "
    "with no text around it. You write to no other system."
)
_FENCE: Final = re.compile(r"^\s*```(?:json)?\s*\n(?P<inside>.*)\n\s*```\s*$", re.DOTALL)

_log = get_logger("runner.anthropic")


class AnthropicExecutor:
    """Carries out agent steps by model calls alone: no tools, no files.

    Its client is shared by all attempts; the key is read for each, so that a rotated one counts at once.
    """

    name = "anthropic"

    def __init__(
        self, settings: Settings, secrets: Secrets, *, prices: PriceTable | None = None, retries: int = RETRIES
    ) -> None:
        self._settings = settings
        self._secrets = secrets
        self._prices = prices or PriceTable()
        self._retries = retries
        self._client = new_client(settings.anthropic_base_url)

    async def execute(self, request: AttemptRequest, *, scope: Scope) -> Produced | Failure:
        model = request.model or self._settings.anthropic_model
        meter = Meter(self._prices, model, request.budget_microdollars)
        if meter.unpriced:
            return Failure(
                "budget_exceeded",
                f"{model} has no price, so a budget cannot be kept: choose a priced model or remove the step's budget",
                model=model,
            )
        try:
            key = self._secrets.require(self._settings.anthropic_api_key_ref)
        except Unavailable as error:
            return Failure("connector_unavailable", error.message, model=model)
        client = self._client.with_options(api_key=key, max_retries=self._retries)
        session = _Session(client, request, scope, meter, self._settings)
        try:
            async with asyncio.timeout(request.deadline_seconds):
                return _without(key, await session.run())
        except TimeoutError:
            return session.failure("timeout", f"no answer within the step's {request.deadline_seconds:g} s")

    async def close(self) -> None:
        await self._client.close()


def _without(key: str, result: Produced | Failure) -> Produced | Failure:
    """The result without the key: a provider, or a proxy before it, may say in its refusal what it was sent."""
    if isinstance(result, Failure):
        return replace(result, message=scrubbed(result.message, [key]))
    return replace(result, output=scrubbed(result.output, [key]))


class _Session:
    """One attempt's conversation."""

    def __init__(
        self, client: AsyncAnthropic, request: AttemptRequest, scope: Scope, meter: Meter, settings: Settings
    ) -> None:
        self._client = client
        self._request = request
        self._meter = meter
        self._calls_max = settings.model_calls_max
        self._tokens_max = settings.model_output_tokens_max
        self._system = "\n\n".join(part for part in (_SYSTEM, in_words(request.output_schema)) if part)
        self._headers = {
            "x-minutebook-scope-workflow": str(request.run_id),
            "x-minutebook-scope-definition": request.definition_id,
            "x-minutebook-scope-step": request.step,
            "x-minutebook-scope-round": str(request.round),
            "x-minutebook-scope-attempt": str(request.attempt),
        }
        self._log = _log.bind(run_id=str(request.run_id), step=request.step, attempt_id=str(scope.attempt_id))

    async def run(self) -> Produced | Failure:
        messages: list[MessageParam] = [{"role": "user", "content": self._request.prompt}]
        corrections = 0
        while True:
            answer = await self._ask(messages)
            if isinstance(answer, Failure):
                return answer
            output, misfit = self._read(answer)
            if misfit is None:
                return self._produced(output)
            if corrections == CORRECTIONS_MAX or self._meter.calls >= self._calls_max:
                return self.failure("output_invalid", f"the model's answer does not fit the schema: {misfit}")
            corrections += 1
            self._log.info("answer does not fit, asking once more")
            messages += [
                {"role": "assistant", "content": answer.strip() or "(no text)"},
                {"role": "user", "content": f"That answer does not fit:\n{misfit}\nAnswer with the corrected object."},
            ]

    async def _ask(self, messages: list[MessageParam]) -> str | Failure:
        """Make one call within the limits; its text, or why there is none."""
        meter = self._meter
        prompt_bytes = len(json.dumps([self._system, messages, self._request.output_schema]).encode())
        max_tokens = meter.answer_tokens(prompt_bytes, self._tokens_max)
        if max_tokens is None:
            return self.failure(
                "budget_exceeded",
                f"call {meter.calls + 1} might cost more than the step's budget leaves: "
                f"{meter.cost} of {self._request.budget_microdollars} microdollars are spent",
            )
        call = Call(meter.model, self._system, messages, max_tokens, self._request.output_schema, self._headers)
        try:
            message = await self._send(call)
        except ProviderTrouble as trouble:
            return self.failure(trouble.failure_class, trouble.message)
        return self._text(message, max_tokens)

    async def _send(self, call: Call) -> Message:
        """Make the call and settle it, also when it breaks off or is cancelled."""
        seen = Seen()
        self._meter.calls += 1
        try:
            return await send(self._client, call, seen)
        finally:
            self._meter.settle(seen.usage)

    def _text(self, message: Message, max_tokens: int) -> str | Failure:
        """The answer's text, when the model came to its end."""
        match message.stop_reason:
            case "end_turn" | "stop_sequence":
                return "".join(block.text for block in message.content if block.type == "text")
            case "max_tokens" if max_tokens < self._tokens_max:
                return self.failure(
                    "budget_exceeded", f"the step's budget left {max_tokens} tokens for an answer that needs more"
                )
            case "max_tokens":
                return self.failure(
                    "output_invalid",
                    f"the answer is longer than {max_tokens} tokens (MINUTEBOOK_MODEL_OUTPUT_TOKENS_MAX)",
                )
            case "refusal":
                reason = message.stop_details.explanation if message.stop_details else None
                return self.failure("output_invalid", f"the model refused: {reason or 'it gave no reason'}")
            case "model_context_window_exceeded":
                return self.failure("default", f"the prompt and its answer do not fit into {message.model}'s context")
            case other:
                return self.failure("output_invalid", f"the model stopped with {other}, which no step uses")

    def _read(self, text: str) -> tuple[JsonObject, str | None]:
        """The object that a text is, and what is wrong with it. Without a schema prose counts as `{"text": ...}`."""
        schema = self._request.output_schema
        fenced = _FENCE.match(text)
        try:
            value = parse(
                (fenced["inside"] if fenced else text).encode(), what="the answer", bytes_max=OUTPUT_BYTES_MAX
            )
        except Malformed as error:
            if schema is None and error.code == "json.invalid" and text.strip():
                return {"text": text}, None
            return {}, error.message
        if not isinstance(value, dict):
            return ({"text": text}, None) if schema is None else ({}, "$: the answer is not a JSON object")
        return value, misfits(value, schema)

    def _produced(self, output: JsonObject) -> Produced:
        meter = self._meter
        return Produced(output, meter.usage, meter.cost, meter.model, meter.calls)

    def failure(self, failure_class: FailureClass, message: str) -> Failure:
        """A failure with what was spent until now."""
        meter = self._meter
        return Failure(failure_class, message, meter.usage, meter.cost, meter.model, meter.calls)

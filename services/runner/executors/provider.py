"""The Messages API as the executor calls it: one streamed call, typed trouble, usage even of a call that was cut."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anthropic
import httpx2
from anthropic import AsyncAnthropic
from anthropic.types import JSONOutputFormatParam, Message, MessageParam, OutputConfigParam

from contracts.base import JsonObject
from contracts.events.attempt import Usage
from libs.telemetry.logs import get_logger
from minutebook.models.states import FailureClass
from services.runner.executors.port import NO_USAGE
from services.runner.executors.wire import on_the_wire

RETRIES: Final = 2
"""How often the client itself repeats a call that met 429, 5xx or no connection, before the step's own retries."""

_TRANSIENT: Final = frozenset({"overloaded_error", "api_error", "rate_limit_error", "timeout_error"})
_KEY: Final = frozenset({"authentication_error", "permission_error"})

_log = get_logger("runner.provider")


class ProviderTrouble(Exception):
    """A call without an answer, and what class of failure that is."""

    def __init__(self, failure_class: FailureClass, message: str) -> None:
        super().__init__(message)
        self.failure_class = failure_class
        self.message = message


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `schema` asks for structured output."""

    model: str
    system: str
    messages: Sequence[MessageParam]
    max_tokens: int
    schema: JsonObject | None
    headers: Mapping[str, str]


@dataclass(slots=True)
class Seen:
    """What the provider said of a call's usage so far. Filled while the answer streams."""

    usage: Usage = NO_USAGE


def new_client(base_url: str | None) -> AsyncAnthropic:
    """A client without a key: each call brings its own, so that a rotated one counts at once."""
    return AsyncAnthropic(api_key="set-per-call", base_url=base_url or "https://api.anthropic.com")


async def send(client: AsyncAnthropic, call: Call, seen: Seen) -> Message:
    """Make the call and return the whole answer.

    Raises:
        ProviderTrouble: `connector_unavailable` for what may pass (429, 5xx, timeouts, cut connections) and for a
            key that the provider refuses; `default` for a request that it will never take (other 4xx: an unknown
            model, a prompt that is too long, a schema that it cannot keep).
    """
    output_config: OutputConfigParam | anthropic.Omit = anthropic.omit
    if call.schema is not None:
        format_: JSONOutputFormatParam = {"type": "json_schema", "schema": {**on_the_wire(call.schema)}}
        output_config = {"format": format_}
    try:
        with _deprecation_logged(call.model):
            answering = client.messages.stream(
                model=call.model,
                system=call.system,
                messages=call.messages,
                max_tokens=call.max_tokens,
                output_config=output_config,
                extra_headers=call.headers,
            )
        async with answering as stream:
            async for event in stream:
                if event.type in ("message_start", "message_delta"):
                    seen.usage = _usage(stream.current_message_snapshot)
            message = await stream.get_final_message()
    except (anthropic.AnthropicError, httpx2.TransportError) as error:
        raise _trouble(error, call.model) from error
    except AssertionError as error:
        # The client asserts that an answer has begun before it ends.
        raise ProviderTrouble("connector_unavailable", "the model provider closed an answer before it began") from error
    if message.stop_reason is None:
        raise ProviderTrouble("connector_unavailable", "the model provider cut its answer off")
    return message


@contextmanager
def _deprecation_logged(model: str) -> Iterator[None]:
    """Say in the log that a model will be retired; the client would say it as a warning, at every call.

    Nothing may be awaited inside: filters of warnings are the whole process's.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DeprecationWarning)
        yield
    for warning in caught:
        _log.warning("model will be retired", model=model, reason=str(warning.message))


def _usage(message: Message) -> Usage:
    usage = message.usage
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_input_tokens or 0,
        cache_write_tokens=usage.cache_creation_input_tokens or 0,
    )


def _trouble(error: Exception, model: str) -> ProviderTrouble:
    """Class and words of what the client raised. Never the provider's words about a key."""
    if isinstance(error, anthropic.APIStatusError):
        status, kind = error.status_code, error.type
        if status in (401, 403) or kind in _KEY:
            return ProviderTrouble(
                "connector_unavailable",
                f"the model provider refused the key ({status}): check the secret that "
                "MINUTEBOOK_ANTHROPIC_API_KEY_REF names and what its workspace may use",
            )
        # Below 400 the answer had begun, and the error came as an event of its stream.
        if status >= 500 or status < 400 or status in (402, 408, 409, 429) or kind in _TRANSIENT:
            return ProviderTrouble("connector_unavailable", f"the model provider answered {kind or 'error'} ({status})")
        return ProviderTrouble(
            "default", f"the model provider refused the request to {model} ({status}): {error.api_message or kind}"
        )
    if isinstance(error, anthropic.APITimeoutError):
        return ProviderTrouble("connector_unavailable", "the model provider did not answer in time")
    return ProviderTrouble("connector_unavailable", f"the model provider cannot be reached: {type(error).__name__}")

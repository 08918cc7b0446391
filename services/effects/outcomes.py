"""From a call's outcome to what is reported of it."""

from typing import Final, assert_never
from uuid import UUID

from contracts.base import BlobRef, JsonObject, JsonValue
from contracts.errors import Malformed
from contracts.events.definition import ToolDeclaration
from libs.canonical import blob
from libs.domain.effect import Doubt, Fail, Finish, State
from libs.language.paths import MISSING, resolve
from libs.mcp import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown
from libs.telemetry.tracing import current_traceparent

MESSAGE_CHARS_MAX: Final = 2_000
"""Of a tool's or a server's own words in a fact."""

RESPONSE_BYTES_MAX: Final = 1 << 20
"""Of a response that is kept whole; a larger one is kept as its size."""

REFERENCE_CHARS_MAX: Final = 2_000


def idempotency_key(effect: State) -> str:
    """What a target knows the effect by, however often it is called: a back-link is another than its write."""
    key = f"{effect.run_id}:{effect.key}"
    return key if effect.kind == "write" else f"{key}:{effect.kind}"


def meta_of(effect: State) -> JsonObject:
    """What travels beside a call's arguments: the effect's key, for targets that know it again, and whose it is."""
    meta: JsonObject = {
        "minutebook/idempotency-key": idempotency_key(effect),
        "minutebook/kind": effect.kind,
        "minutebook/run": str(effect.run_id),
    }
    traceparent = current_traceparent()
    return meta if traceparent is None else {**meta, "traceparent": traceparent}


def verdict(outcome: Outcome, *, tool: ToolDeclaration, claim: UUID) -> Finish | Fail | Doubt:
    """What is reported of a call. Only what was surely not sent is `connector_unavailable`; unknown is in doubt."""
    match outcome:
        case Answered(content=content):
            response, blobs = kept(content)
            return Finish(claim=claim, reference=reference(tool.reference, content), response=response, blobs=blobs)
        case ToolError(message=message):
            return Fail(claim=claim, failure_class="default", message=message[:MESSAGE_CHARS_MAX])
        case RejectedByServer(code=code, message=message):
            told = f"the server refused the call ({code}): {message}"
            return Fail(claim=claim, failure_class="default", message=told[:MESSAGE_CHARS_MAX])
        case NotSent(reason=reason):
            told = f"the call was not sent: {reason}"
            return Fail(claim=claim, failure_class="connector_unavailable", message=told[:MESSAGE_CHARS_MAX])
        case Unknown(reason=reason):
            return Doubt(claim=claim, reason=reason[:MESSAGE_CHARS_MAX])
        case _:
            assert_never(outcome)


def kept(content: JsonValue) -> tuple[BlobRef, dict[str, bytes]]:
    """The response as it is kept. The write is done by now: what cannot be kept whole must not undo that."""
    try:
        ref, data = blob(content)
    except Malformed:
        ref, data = blob({"not_kept": "the response is not JSON"})
    if ref.bytes > RESPONSE_BYTES_MAX:
        ref, data = blob({"not_kept": f"the response has {ref.bytes} bytes; at most {RESPONSE_BYTES_MAX} are kept"})
    return ref, {ref.digest: data}


def reference(path: str | None, content: JsonValue) -> str | None:
    """The record's reference as text, where a path to it is declared and the content has it."""
    if path is None or not isinstance(content, dict):
        return None
    found = resolve(path, content)
    if found is MISSING or isinstance(found, bool) or not isinstance(found, str | int | float):
        return None
    return str(found)[:REFERENCE_CHARS_MAX]

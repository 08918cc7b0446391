"""From an effect to a tool call, and from the call's outcome to what is reported of it."""

import json
import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, assert_never
from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, JsonObject, JsonValue
from contracts.errors import Malformed, Unavailable
from contracts.events.definition import ServerSynced, ToolDeclaration
from libs.canonical import blob
from libs.config import Secrets
from libs.domain import definition, identity
from libs.domain.effect import CALL_TIMEOUT_MAX, Doubt, Fail, Finish, State
from libs.eventstore.port import EventStore
from libs.language.paths import resolve
from libs.mcp import Answered, NotSent, Outcome, RejectedByServer, ToolError, Unknown
from libs.telemetry.tracing import current_traceparent
from services.effects.grants import Grants
from services.effects.refusal import Refusal
from services.effects.scrubbing import scrubbed

MESSAGE_CHARS_MAX: Final = 2_000
"""Of a tool's or a server's own words in a fact."""

RESPONSE_BYTES_MAX: Final = 1 << 20
"""Of a response that is kept whole; a larger one is kept as its size."""

REFERENCE_CHARS_MAX: Final = 2_000

BEARABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""What a header can carry as a token."""


@dataclass(frozen=True, slots=True)
class Call:
    """Everything that one tool call needs. Holds a secret: never logged."""

    url: str
    token: str | None
    tool: ToolDeclaration
    arguments: JsonObject

    @property
    def timeout(self) -> timedelta:
        return min(timedelta(seconds=self.tool.timeout_seconds), CALL_TIMEOUT_MAX)


class Connectors:
    """Resolves effects against what their tenant group has declared, just before their calls are announced."""

    def __init__(self, store: EventStore, secrets: Secrets, grants: Grants) -> None:
        self._store = store
        self._secrets = secrets
        self._grants = grants

    async def resolve(self, tenant_group: UUID, effect: State) -> Call | Refusal:
        """Return the call to make, or why none can be made.

        A server or tool that is not declared and a secret that is missing are `connector_unavailable`: mended from
        outside, then tried again. An owner who is no active user is `missing_data`, and so is one without the grant
        that the server requires.

        Raises:
            contracts.errors.Unavailable: the record does not answer; nothing is known.
        """
        assert effect.owner is not None
        assert effect.arguments is not None
        refusal = await self._judge_owner(tenant_group, effect.owner.id, effect.owner.email)
        if refusal is not None:
            return refusal
        server = await self._server(tenant_group, effect.system)
        if server is None:
            return Refusal("connector_unavailable", f"no MCP server {effect.system!r} is declared; sync one")
        tool = next((tool for tool in server.tools if tool.name == effect.tool), None)
        if tool is None:
            return Refusal(
                "connector_unavailable", f"the MCP server {effect.system!r} declares no tool {effect.tool!r}"
            )
        arguments = await self._arguments(tenant_group, effect.arguments)
        if arguments is None:
            return Refusal("missing_data", "the arguments are not in the record")
        grant = await self._grants.secret(tenant_group, effect.owner, server)
        if isinstance(grant, Refusal):
            return grant
        try:
            assert server.url_ref is not None, "a server over HTTP has an address"
            url = self._secrets.require(server.url_ref)
            token = grant
            if token is None and server.token_ref is not None:
                token = self._secrets.require(server.token_ref)
        except Unavailable as error:
            return Refusal("connector_unavailable", error.message)
        if token is not None and not BEARABLE.fullmatch(token):
            # The HTTP library would quote it in its refusal.
            return Refusal(
                "connector_unavailable", f"the token for the MCP server {effect.system!r} is no bearer token"
            )
        return Call(url=url, token=token, tool=tool, arguments=arguments)

    async def _judge_owner(self, tenant_group: UUID, user_id: UUID, email: str) -> Refusal | None:
        found = await self._store.events("identity", [user_id], tenant_group=tenant_group)
        user = identity.CATEGORY.fold(tuple(recorded.event for recorded in found.get(user_id, ())))
        if user.active and user.kind in {"user", "service_user"}:
            return None
        return Refusal("missing_data", f"the run's owner {email} is no active user, so nothing is written for it")

    async def _server(self, tenant_group: UUID, system: str) -> ServerSynced | None:
        server_id = ids.server(tenant_group, system)
        found = await self._store.events("definition", [server_id], tenant_group=tenant_group)
        state = definition.CATEGORY.fold(tuple(recorded.event for recorded in found.get(server_id, ())))
        return state.current if isinstance(state.current, ServerSynced) else None

    async def _arguments(self, tenant_group: UUID, ref: BlobRef) -> JsonObject | None:
        content = (await self._store.blobs(tenant_group, [ref.digest])).get(ref.digest)
        value = json.loads(content) if content is not None else None
        return value if isinstance(value, dict) else None


def meta_of(effect: State) -> JsonObject:
    """What travels beside a call's arguments: the effect's key, for targets that know it again, run and trace."""
    meta: JsonObject = {
        "minutebook/idempotency-key": f"{effect.run_id}:{effect.key}",
        "minutebook/run": str(effect.run_id),
    }
    traceparent = current_traceparent()
    return meta if traceparent is None else {**meta, "traceparent": traceparent}


def verdict(outcome: Outcome, *, call: Call, claim: UUID) -> Finish | Fail | Doubt:
    """What is reported of a call. Only what was surely not sent is `connector_unavailable`; unknown is in doubt."""
    match scrubbed(outcome, (call.token, call.url)):
        case Answered(content=content):
            response, blobs = _response(content)
            return Finish(claim=claim, reference=_reference(call.tool, content), response=response, blobs=blobs)
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
        case never:
            assert_never(never)


def _response(content: JsonValue) -> tuple[BlobRef, dict[str, bytes]]:
    """The response as it is kept. The write is done by now: what cannot be kept whole must not undo that."""
    try:
        ref, data = blob(content)
    except Malformed:
        ref, data = blob({"not_kept": "the response is not JSON"})
    if ref.bytes > RESPONSE_BYTES_MAX:
        ref, data = blob({"not_kept": f"the response has {ref.bytes} bytes; at most {RESPONSE_BYTES_MAX} are kept"})
    return ref, {ref.digest: data}


def _reference(tool: ToolDeclaration, content: JsonValue) -> str | None:
    """The record's reference as text, where the tool declares a path to it and the response has it."""
    if tool.reference is None or not isinstance(content, dict | list):
        return None
    found = resolve(tool.reference, content) if isinstance(content, dict) else None
    if isinstance(found, str | int | float) and not isinstance(found, bool):
        return str(found)[:REFERENCE_CHARS_MAX]
    return None

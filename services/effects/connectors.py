"""From an effect to what it takes to call its server: what the tenant group declared, and the secrets that it names."""

import json
import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts import ids
from contracts.base import BlobRef, JsonObject
from contracts.errors import Unavailable
from contracts.events.definition import ServerSynced, ToolDeclaration
from libs.config import Secrets
from libs.domain import definition, identity
from libs.domain.effect import CALL_TIMEOUT_MAX, State
from libs.eventstore.port import EventStore
from libs.mcp import Address, Http, Stdio
from services.effects.gates import UNLIMITED, Limits
from services.effects.grants import Grants
from services.effects.outcomes import idempotency_key
from services.effects.refusal import Refusal

BEARABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
"""What a header can carry as a token."""


@dataclass(frozen=True, slots=True)
class Call:
    """Everything that one tool call needs. `given` are the effect's own arguments, without what is set for the server.

    Holds a secret: never logged.
    """

    address: Address = field(repr=False)
    tool: ToolDeclaration
    given: JsonObject
    arguments: JsonObject

    @property
    def secrets(self) -> tuple[str, ...]:
        """What the target is called with, and must not be quoted with."""
        match self.address:
            case Http(url, token):
                return (url,) if token is None else (token, url)
            case Stdio(_, env):
                return tuple(env.values())

    @property
    def timeout(self) -> timedelta:
        return min(timedelta(seconds=self.tool.timeout_seconds), CALL_TIMEOUT_MAX)


class Connectors:
    """Resolves effects against what their tenant group has declared, just before their calls are announced.

    `commands` are what a server over stdio may be started by.
    """

    def __init__(
        self, store: EventStore, secrets: Secrets, grants: Grants, *, commands: frozenset[str] = frozenset()
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._grants = grants
        self._commands = commands

    async def limits(self, tenant_group: UUID, system: str) -> Limits:
        """What the server's declaration says of when it may be called."""
        server = await self.server(tenant_group, system)
        return UNLIMITED if server is None else Limits.of(server)

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
        refusal = await self._judge_owner(tenant_group, effect.owner.id)
        if refusal is not None:
            return refusal
        server = await self.server(tenant_group, effect.system)
        if server is None:
            return Refusal("connector_unavailable", f"no MCP server {effect.system!r} is declared; sync one")
        tool = tool_of(server, effect)
        if tool is None:
            return Refusal(
                "connector_unavailable", f"the MCP server {effect.system!r} declares no tool {effect.tool!r}"
            )
        given = await self.arguments(tenant_group, effect.arguments)
        if given is None:
            return Refusal("missing_data", "the arguments are not in the record")
        grant = await self._grants.secret(tenant_group, effect.owner, server)
        if isinstance(grant, Refusal):
            return grant
        try:
            address = self.address(server, grant=grant)
        except Unavailable as error:
            return Refusal("connector_unavailable", error.message)
        named = tool.idempotency_argument
        arguments = given if named is None else {**given, named: idempotency_key(effect)}
        return Call(address=address, tool=tool, given=given, arguments=arguments)

    async def server(self, tenant_group: UUID, system: str) -> ServerSynced | None:
        """The server that is declared under a name now."""
        server_id = ids.server(tenant_group, system)
        found = await self._store.events("definition", [server_id], tenant_group=tenant_group)
        state = definition.CATEGORY.fold(tuple(recorded.event for recorded in found.get(server_id, ())))
        return state.current if isinstance(state.current, ServerSynced) else None

    async def arguments(self, tenant_group: UUID, ref: BlobRef) -> JsonObject | None:
        """An effect's own arguments; None when they are not in the record."""
        content = (await self._store.blobs(tenant_group, [ref.digest])).get(ref.digest)
        value = json.loads(content) if content is not None else None
        return value if isinstance(value, dict) else None

    def address(self, server: ServerSynced, *, grant: str | None = None) -> Address:
        """Where a server is called, with the secrets that its declaration names and a grant in place of its own.

        Raises:
            contracts.errors.Unavailable: a secret is missing or of no use, or its command may not be started here.
        """
        if server.transport == "streamable_http":
            assert server.url_ref is not None, "a server over HTTP has an address"
            url = self._secrets.require(server.url_ref)
            token = grant
            if token is None and server.token_ref is not None:
                token = self._secrets.require(server.token_ref)
            if token is not None and not BEARABLE.fullmatch(token):
                # The HTTP library would quote it in its refusal.
                raise Unavailable(
                    "server.token", f"the token for the MCP server {server.server_id!r} is no bearer token"
                )
            return Http(url, token)
        if server.command[0] not in self._commands:
            raise Unavailable(
                "server.command",
                f"the command {server.command[0]!r} of the MCP server {server.server_id!r} is none that may be started "
                "here; add it to MINUTEBOOK_MCP_COMMANDS of the effects service, if it is to be trusted",
            )
        env = {name: self._secrets.require(ref) for name, ref in server.env.items()}
        if grant is not None and server.grant_env is not None:
            env[server.grant_env] = grant
        return Stdio(server.command, env)

    async def _judge_owner(self, tenant_group: UUID, user_id: UUID) -> Refusal | None:
        found = await self._store.events("identity", [user_id], tenant_group=tenant_group)
        user = identity.CATEGORY.fold(tuple(recorded.event for recorded in found.get(user_id, ())))
        if user.active and user.kind in {"user", "service_user"}:
            return None
        return Refusal(
            "missing_data", f"the run's owner, user {user_id}, is no active user, so nothing is written for it"
        )


def tool_of(server: ServerSynced, effect: State) -> ToolDeclaration | None:
    """The declaration of the effect's tool. A back-link's may be named by a write's alone."""
    declared = next((tool for tool in server.tools if tool.name == effect.tool), None)
    if declared is None and effect.kind == "back_link":
        links = {tool.back_link.tool for tool in server.tools if tool.back_link is not None}
        return ToolDeclaration(name=effect.tool) if effect.tool in links else None
    return declared

"""What every handler works with: the caller, and the way to the owners."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar, cast
from uuid import UUID

from fastapi import Depends, Request, Security
from fastapi.routing import APIRoute
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.responses import Response

from contracts import ids
from contracts.base import Frozen, Principal
from contracts.commands import Command
from contracts.errors import Rejected
from libs.domain.access import is_administrator
from libs.eventstore.letters import PostgresLetters
from libs.ids import mint
from libs.process import Tools
from libs.process.asks import ask
from libs.process.dbclock import DatabaseClock
from libs.telemetry.outage import Outage
from libs.telemetry.tracing import current_traceparent
from services.api.auth import Authenticator
from services.api.bodies import StrictRequest
from services.api.decision_views import DecisionViews
from services.api.definition_views import DefinitionViews
from services.api.delegations import Delegations
from services.api.event_views import EventViews
from services.api.grants import Grants
from services.api.lean import caller_of, is_lean
from services.api.notice_views import NoticeViews
from services.api.people import People
from services.api.queries import Queries
from services.api.rates import Rates
from services.api.refusals import Refusals
from services.api.views import Views
from services.api.waiting import Waiting

PREFIX: Final = "/api/public/admin/workflows"

COMMAND_BYTES_MAX: Final = 960 * 1024
"""Largest command that is sent to an owner: the bus carries 1 MiB."""

READ: Final = "read"
SCOPES: Final = (
    READ,
    "runs",
    "decisions",
    "effects",
    "definitions",
    "events",
    "schedules",
    "notices",
    "grants",
    "users",
)
"""What a token can be limited to: reading, or changing the things of a tag. A token without scopes may do all."""

R = TypeVar("R", bound=Frozen)


@dataclass(frozen=True, slots=True)
class Door:
    """The api's own tools."""

    tools: Tools
    auth: Authenticator
    queries: Queries
    views: Views
    definitions: DefinitionViews
    events: EventViews
    letters: PostgresLetters
    waiting: Waiting
    clock: DatabaseClock
    notices: Outage
    """The way of webhooks' notices to ingest."""
    notice_views: NoticeViews
    rates: Rates
    refusals: Refusals
    people: People
    grants: Grants
    decisions: DecisionViews
    delegations: Delegations

    async def opening(self, caller: Principal, *, command_id: UUID | None = None) -> dict[str, Any]:
        """The fields that every command begins with. The deadline is by the database's clock, as owners judge it."""
        now = await self.clock.now()
        return {
            "command_id": command_id or mint(),
            "deadline": now + self._timeout,
            "principal": caller,
            "traceparent": current_traceparent(),
        }

    async def ask(self, command: Command, reply: type[R]) -> R:
        """Ask the owner of a command.

        Raises:
            contracts.errors.MinutebookError: the owner's no; 413 for what the bus cannot carry; 503 without an answer.
        """
        size = len(command.model_dump_json())
        if size > COMMAND_BYTES_MAX:
            raise Rejected(
                "body.too_large", f"a command has at most {COMMAND_BYTES_MAX} bytes; this has {size}", status=413
            )
        return await ask(self.tools.bus, command, reply, timeout=self._timeout)

    @property
    def _timeout(self) -> timedelta:
        return timedelta(seconds=self.tools.settings.ask_timeout_seconds)


def door_of(request: Request) -> Door:
    return cast(Door, request.app.state.door)


class DoorRoute(APIRoute):
    """A route behind the door: who asks is known before anything is read, and the body before FastAPI sees it."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        call = None
        if is_lean(self.endpoint):
            call = caller_of(self.endpoint, path=self.path, status=self.status_code or 200, door=Door)
        reads = "GET" in (self.methods or ())
        needed = READ if reads else str(self.tags[0])

        async def guarded(request: Request) -> Response:
            door = door_of(request)
            caller = await door.auth.authenticate(request.headers)
            require_scope(caller, needed)
            request.state.caller = caller
            strict = StrictRequest(request.scope, request.receive)
            if not reads:
                await strict.take(bytes_max=door.tools.settings.request_bytes_max)
            return await handle(strict) if call is None else await call(strict, caller, door)

        return guarded


def require_scope(caller: Principal, needed: str) -> None:
    """Refuse a token that is limited to other things.

    Raises:
        contracts.errors.Rejected: 403.
    """
    if caller.scopes and needed not in caller.scopes:
        raise Rejected(
            "auth.scope",
            f"the token is limited to {', '.join(sorted(caller.scopes))}; this needs {needed!r}",
            status=403,
        )


def require_administrator(caller: Principal, code: str, what: str) -> None:
    """Refuse whoever does not administer the tenant group. `what` begins the sentence that says so.

    Raises:
        contracts.errors.Rejected: 403.
    """
    if not is_administrator(caller):
        raise Rejected(code, f"{what} by administrators", status=403)


def command_id_of(caller: Principal, key: str | None, *parts: str | UUID) -> UUID | None:
    """The command that a caller's idempotency key stands for; None without a key, for a new one."""
    return None if key is None else ids.derive("command", caller.id, *parts, key)


bearer: Final = HTTPBearer(
    auto_error=False, scheme_name="token", description="A personal access token or an API key, as a bearer token."
)
api_key: Final = APIKeyHeader(
    name="x-api-key", auto_error=False, scheme_name="api_key", description="The same, in a header of its own."
)
SECURED: Final = [Security(bearer), Security(api_key)]
"""Documents what `DoorRoute` asks for."""


async def _caller(request: Request) -> Principal:
    return cast(Principal, request.state.caller)


async def _door(request: Request) -> Door:
    return door_of(request)


# Coroutines, though they await nothing: FastAPI calls plain functions in a thread.
Caller = Annotated[Principal, Depends(_caller)]
TheDoor = Annotated[Door, Depends(_door)]

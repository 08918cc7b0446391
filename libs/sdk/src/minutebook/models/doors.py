"""What the door itself answers: who the caller is, what became of a delivery, how the service is."""

from typing import Literal
from uuid import UUID

from minutebook.models.base import Shown


class MeView(Shown):
    """The caller, as the server knows it."""

    kind: Literal["user", "service_user", "api_key"]
    id: UUID
    name: str
    tenant_group: UUID
    tenant: UUID
    administrator: bool
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    projects: tuple[str, ...]
    scopes: tuple[str, ...]


class DeliveryAccepted(Shown):
    """A webhook delivery was stored, now or before."""

    status: Literal["accepted", "duplicate"]
    event_id: UUID | None = None


class Health(Shown):
    status: Literal["ok"] = "ok"


class Readiness(Shown):
    """Whether the service can do its work, and what it lacks."""

    status: Literal["ready", "not_ready"]
    database: bool
    bus: bool

"""What every message shares."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue

from contracts.personal import Personal

Microdollars = Annotated[int, Field(ge=0, description="integer millionths of a US dollar")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 in lower-case hexadecimal")]
JsonObject = dict[str, JsonValue]
Instant = AwareDatetime


class Frozen(BaseModel):
    """A value: immutable, and strict about keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_timedelta="float")


class Event(Frozen):
    """A fact. `at` is the database's clock when it was decided."""

    at: Instant


class BlobRef(Frozen):
    """The address of content in `blobs`: canonical JSON, kept once per tenant group."""

    digest: Sha256
    bytes: int


class Actor(Frozen):
    """Who caused a fact, as the record names them."""

    kind: Literal["user", "service_user", "api_key", "system"]
    id: UUID | None = None
    name: Annotated[str, Personal("person")] = Field(
        description="email of a user, name of a key, or name of the service that acted by itself"
    )

    @property
    def person(self) -> UUID | None:
        """Whose the name is. Keys and services are nobody."""
        return self.id if self.kind in {"user", "service_user"} else None


class ActsFor(Frozen):
    """A person who lets the principal decide in their place now, under the workflow roles `named`, where any are."""

    id: UUID
    email: str
    named: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()


class Principal(Frozen):
    """The authenticated caller of a command with everything that deciders need to judge it."""

    kind: Literal["user", "service_user", "api_key"]
    id: UUID
    name: str
    tenant_group: UUID
    tenant: UUID
    roles: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    projects: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    acts_for: tuple[ActsFor, ...] = ()

    @property
    def actor(self) -> Actor:
        return Actor(kind=self.kind, id=self.id, name=self.name)


class Metadata(Frozen):
    """What is known of a fact beside its content. Stored with every event."""

    tenant_group: UUID
    tenant: UUID
    actor: Actor
    correlation: UUID = Field(description="the run that this belongs to, else the stream itself")
    causation: UUID = Field(description="the command or message that caused it")
    traceparent: str | None = Field(default=None, description="W3C trace context")


__all__ = [
    "Actor",
    "ActsFor",
    "BlobRef",
    "Event",
    "Frozen",
    "Instant",
    "JsonObject",
    "JsonValue",
    "Metadata",
    "Microdollars",
    "Principal",
    "Sha256",
    "datetime",
]

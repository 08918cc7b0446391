"""What the public models share."""

from typing import Annotated, Generic, Literal, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, JsonValue

T = TypeVar("T")

Microdollars = Annotated[int, Field(ge=0, description="integer millionths of a US dollar")]
JsonObject = dict[str, JsonValue]


class Sent(BaseModel):
    """What a caller sends: unknown keys are refused, so that a misspelt one is not silently lost."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Shown(BaseModel):
    """What the API answers. Unknown keys are ignored: a newer server may say more."""

    model_config = ConfigDict(frozen=True)


class Page(Shown, Generic[T]):
    """Part of a list. Give `next_cursor` back as `cursor` for what follows; null at the end.

    A page may hold fewer items than were asked for and still have a cursor.
    """

    items: tuple[T, ...]
    next_cursor: str | None = None


class ActorView(Shown):
    """Who caused a fact."""

    kind: Literal["user", "service_user", "api_key", "system"]
    id: UUID | None = None
    name: str = Field(description="email of a user, name of a key, or name of the service that acted by itself")


class Person(Shown):
    """Who started a run. `email` is a key's name when a key did."""

    id: UUID
    email: str | None = None

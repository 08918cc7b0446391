"""Users, and what they granted to be written with in their name."""

from typing import Annotated, Literal
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, ConfigDict, Field, SecretStr

from minutebook.models.base import ActorView, JsonObject, Sent, Shown

EMAIL_PATTERN = r"^[^\s@\x00]+@[^\s@\x00]+$"
NAME_PATTERN = r"^[^\x00]*$"
GRANT_CHARS_MAX = 8_000

Name = Annotated[str, Field(min_length=1, max_length=200, pattern=NAME_PATTERN)]


def bearable(secret: SecretStr) -> SecretStr:
    """Refuse what no header can carry, without saying what it is.

    Raises:
        ValueError: it is empty, too long, or not printable ASCII.
    """
    text = secret.get_secret_value()
    if not 0 < len(text) <= GRANT_CHARS_MAX or text != text.strip() or not (text.isascii() and text.isprintable()):
        raise ValueError(f"a token is printable ASCII without spaces at its ends, {GRANT_CHARS_MAX} characters at most")
    return secret


class UserView(Shown):
    """A person, or a service user that owns the runs nobody starts by hand."""

    user_id: UUID
    email: str
    name: str
    kind: Literal["user", "service_user"]
    state: Literal["active", "inactive"] = Field(description="what was deactivated stays so")
    roles: tuple[str, ...]
    groups: tuple[str, ...]
    projects: tuple[str, ...]


class RegisterUserRequest(Sent):
    """Somebody to register. The same again changes nothing; projects that are not there are made."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"email": "mira@example.com", "name": "Mira", "roles": ["developer"], "projects": ["core"]},
                {"email": "nightly@example.com", "kind": "service_user"},
            ]
        }
    )

    email: str = Field(max_length=200, pattern=EMAIL_PATTERN)
    name: Name | None = Field(default=None, description="else the email")
    kind: Literal["user", "service_user"] = "user"
    roles: tuple[Name, ...] = Field(default=(), max_length=100)
    groups: tuple[Name, ...] = Field(default=(), max_length=100)
    projects: tuple[Name, ...] = Field(default=(), max_length=100)


class PersonalFact(Shown):
    """One fact of a user, a token or a grant: who changed what, and what it was before and after."""

    version: int = Field(description="counts the facts of its stream from 1")
    type: str = Field(description="for example `identity.user_deactivated`")
    at: AwareDatetime
    actor: ActorView
    text: str = Field(description="the fact in words")
    before: JsonObject | None = Field(description="what there was; null before there was anything")
    after: JsonObject
    digest: str = Field(description="SHA-256 that chains this fact to the one before it in its stream")


class GiveGrantRequest(Sent):
    """A user's credential for an MCP server. It is sealed, and told to nobody but that server."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"server": "github", "token": "github_pat_…", "expires_at": "2027-03-31T00:00:00Z"},
                {"server": "github", "token": "github_pat_…", "user": "nightly@example.com"},
            ]
        }
    )

    server: str = Field(min_length=1, max_length=200, pattern=NAME_PATTERN, description="id of the MCP server")
    token: Annotated[SecretStr, AfterValidator(bearable)] = Field(
        description="what the server takes as bearer token; printable ASCII"
    )
    user: str | None = Field(
        default=None,
        max_length=200,
        pattern=NAME_PATTERN,
        description="email or id of a service user, for administrators; else the caller's own",
    )
    expires_at: AwareDatetime | None = Field(default=None, description="it counts no more from then on; null: no end")


class GrantView(Shown):
    """That a user gave a grant, and whether it counts. The credential itself is shown to nobody."""

    grant_id: UUID
    user_id: UUID
    user: str = Field(description="the user's email")
    server: str
    state: Literal["active", "expired", "revoked"]
    given_at: AwareDatetime
    given_by: ActorView
    expires_at: AwareDatetime | None

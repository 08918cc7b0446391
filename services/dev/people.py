"""Who there is in a development stack: a company with its users, and a stranger behind another wall."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from minutebook.client import ApiError, Client
from services.api.identity import Identity
from services.dev.datadir import DataDir

GROUP: Final = "example"
OTHER_GROUP: Final = "elsewhere"
PROJECT: Final = "core"
ADMINISTRATOR: Final = "admin@example.com"


@dataclass(frozen=True, slots=True)
class Person:
    """A seeded user."""

    email: str
    name: str
    roles: tuple[str, ...]
    kind: Literal["user", "service_user"] = "user"
    groups: tuple[str, ...] = ()
    projects: tuple[str, ...] = (PROJECT,)


PEOPLE: Final = (
    Person(ADMINISTRATOR, "Ada, who administers", ("platform_admin",)),
    Person("dana@example.com", "Dana, developer", ("developer",)),
    Person("priya@example.com", "Priya, product owner", ("project_manager",)),
    Person("lena@example.com", "Lena, lead developer", ("platform_admin",)),
    Person("gus@example.com", "Gus, who has no role and no project", (), projects=()),
    Person("workflows@example.com", "Runs that an event starts", (), kind="service_user"),
)
_NOT_TAKEN: Final = ("server.not_found", "grant.not_taken")
"""What is said of a server that the folder does not declare, or declares to take no grants."""

OUTSIDER: Final = Person("olga@elsewhere.example", "Olga, of another company", ("platform_admin",), projects=())


async def seed(identity: Identity, data: DataDir) -> dict[str, str]:
    """Register everybody and mint a token for each; returns token by email. The same again after a restart."""
    tokens: dict[str, str] = {}
    for group, people in ((GROUP, PEOPLE), (OTHER_GROUP, (OUTSIDER,))):
        place = await identity.provision_group(group)
        await identity.project(place, PROJECT, name="Core product")
        for person in people:
            user_id = await identity.register_user(
                place,
                person.email,
                name=person.name,
                kind=person.kind,
                roles=person.roles,
                groups=person.groups,
                projects=person.projects,
            )
            if person.kind == "user":
                secret = f"mbt_{data.secret(f'token of {person.email}')}"
                await identity.mint_key(place, name=f"dev token of {person.email}", user_id=user_id, secret=secret)
                tokens[person.email] = secret
    return tokens


async def give_grants(client: Client, servers: Collection[str], tokens: Mapping[str, str]) -> None:
    """Let the service users write to the servers that are declared, each with its own token; people give their own."""
    for person in PEOPLE:
        for server in servers if person.kind == "service_user" else ():
            try:
                await client.give_grant(server, tokens[person.email], user=person.email, idempotency_key="seeded")
            except ApiError as error:
                if error.problem.code not in _NOT_TAKEN:
                    raise

"""With whose credential a write is made, judged when it is about to be made: by the target's own record."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Actor, Event
from contracts.events.identity import GrantGiven, GrantRevoked, UserDeactivated, UserRegistered
from libs.config import Secrets
from libs.domain import effect, identity
from libs.mcp import Answered, ToolError, Unknown
from libs.sealing import KEY_REF, Sealing, new_key
from libs.vault import Vault
from services.dev.sandbox_mcp import SERVER
from services.effects.scrubbing import scrubbed
from tests.support.effects import EMAIL, GRANT, GRANTED, SEALING_KEY, World, open_world
from tests.support.postgres import Database

BY = Actor(kind="user", name=EMAIL)


@pytest.fixture
async def world(database: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(database, tmp_path) as world:
        yield world


async def give(world: World, server: str = "github", *, secret: str = GRANT, key: str = SEALING_KEY) -> UUID:
    """Give Sam's grant as the door gives it: the secret first, then the fact. Returns the grant."""
    group, user = world.record.group, world.owner.id
    grant_id, secret_id = ids.grant(group, user, server), uuid4()
    vault = Vault(world.record.pool, Sealing(Secrets(overrides={KEY_REF: key})))
    await vault.keep(group, grant_id, secret_id, secret)
    now = await world.record.store.now()
    ends = now + timedelta(hours=1)
    fact = GrantGiven(at=now, user_id=user, server_id=server, secret_id=secret_id, expires_at=ends, by=BY)
    await world.record.plant(identity.CATEGORY, grant_id, fact)
    return grant_id


async def written(world: World, system: str = "github", *, until: str = "succeeded", **settings: Any) -> effect.State:
    """Write once through an effects service of its own, and wait for how it ends."""
    _, bus = await world.service(**settings)
    effect_id = await world.declare(await world.run(), system=system)
    await bus.tell("effects-history", "effect.declared", effect_id)
    return await world.until(effect_id, until)


def writers(world: World) -> list[str]:
    return [call["by"] for call in world.target.calls()]


async def test_a_write_bears_the_grant_of_its_runs_owner(world: World) -> None:
    await give(world)
    await written(world)
    assert writers(world) == [GRANTED]


@pytest.mark.parametrize("grants, by", [("optional", [GRANTED]), ("required", [GRANTED]), ("none", [SERVER])])
async def test_the_server_says_whether_a_grant_is_taken(world: World, grants: Any, by: list[str]) -> None:
    await world.another_server("vcs", grants=grants)
    await give(world, "vcs")
    await written(world, "vcs")
    assert writers(world) == by


async def test_without_a_grant_the_server_is_written_to_under_its_own_token_where_it_allows_that(world: World) -> None:
    await written(world)
    assert writers(world) == [SERVER]


@pytest.mark.parametrize("kind", ["user", "service_user"])
async def test_a_required_grant_that_nobody_gave_says_who_can_give_it(world: World, kind: Any) -> None:
    await world.another_server("vcs", grants="required")
    await registered_anew(world, kind)
    state = await written(world, "vcs", until="failed")
    assert state.failure_class == "missing_data"
    assert state.message is not None
    assert f"that of user {world.owner.id} is none" in state.message
    if kind == "user":
        assert "`minutebook grants give vcs` by that user" in state.message
    else:
        assert f"`minutebook grants give vcs --user {world.owner.id}` by an administrator" in state.message
    assert EMAIL not in state.message, "it goes into the history in clear"
    assert writers(world) == []


async def registered_anew(world: World, kind: Any) -> None:
    """Make the owner a person or a service user: the last registration counts in a fold."""
    now = await world.record.store.now()
    user = UserRegistered(at=now, email=EMAIL, name="Sam", kind=kind)
    await world.record.plant(identity.CATEGORY, world.owner.id, user)


async def end(world: World, how: str, grant_id: UUID) -> None:
    now = await world.record.store.now()
    fact: Event
    match how:
        case "revoked":
            fact = GrantRevoked(at=now, by=BY)
            await world.record.plant(identity.CATEGORY, grant_id, fact)
        case "ended":
            await world.record.shift(timedelta(hours=2))
        case "left":
            await world.record.plant(identity.CATEGORY, world.owner.id, UserDeactivated(at=now))
        case _:
            await world.record.pool.execute("delete from grant_secrets where grant_id = $1", grant_id)


@pytest.mark.parametrize(
    "how, says",
    [("revoked", "was revoked"), ("ended", "has ended"), ("left", "no active user"), ("lost", "not kept any more")],
)
async def test_what_ended_a_grant_counts_when_the_write_is_made(world: World, how: str, says: str) -> None:
    await world.another_server("vcs", grants="required")
    grant_id = await give(world, "vcs")
    await written(world, "vcs")
    await end(world, how, grant_id)
    state = await written(world, "vcs", until="failed")
    assert state.failure_class == "missing_data"
    assert state.message is not None
    assert says in state.message
    assert EMAIL not in state.message, "it goes into the history in clear"
    assert writers(world) == [GRANTED]


async def test_a_grant_sealed_with_a_key_that_is_not_there_waits_for_the_key(world: World) -> None:
    await give(world, key=new_key())
    state = await written(world, until="failed")
    assert state.failure_class == "connector_unavailable"
    assert state.message is not None
    assert "sealing_key_previous" in state.message
    assert writers(world) == []


async def test_a_sealed_secret_does_not_open_in_the_place_of_another(world: World) -> None:
    """Whoever may write to the table cannot lend one grant's secret to another."""
    await world.another_server("vcs", grants="required")
    mine, theirs = await give(world), await give(world, "vcs", secret="another-secret")
    copied = await world.record.pool.fetchval("select sealed from grant_secrets where grant_id = $1", mine)
    place = await world.record.pool.fetchrow("delete from grant_secrets where grant_id = $1 returning *", theirs)
    assert place is not None
    await world.record.pool.execute(
        "insert into grant_secrets (secret_id, tenant_group, grant_id, sealed) values ($1, $2, $3, $4)",
        place["secret_id"],
        place["tenant_group"],
        theirs,
        copied,
    )
    state = await written(world, "vcs", until="failed")
    assert state.failure_class == "missing_data"
    assert writers(world) == []


@pytest.mark.parametrize("secret", ["two\nlines", "tab\tinside", "übergroß", " led by a space"])
async def test_a_token_that_no_header_carries_is_not_quoted(world: World, secret: str) -> None:
    await give(world, secret=secret)
    state = await written(world, until="failed")
    assert state.failure_class == "connector_unavailable"
    assert state.message == "the token for the MCP server 'github' is no bearer token"


def test_what_a_target_repeats_of_the_credential_is_taken_out() -> None:
    said = f"invalid token {GRANT}!"
    assert scrubbed(ToolError(said), [GRANT, None]) == ToolError("invalid token ***!")
    assert scrubbed(Unknown(said), [GRANT]) == Unknown("invalid token ***!")
    nested = Answered({"echo": [{GRANT: said}], "number": 7, "none": None})
    assert scrubbed(nested, [GRANT]) == Answered({"echo": [{"***": "invalid token ***!"}], "number": 7, "none": None})
    assert scrubbed(ToolError("a token"), ["a"]) == ToolError("a token")

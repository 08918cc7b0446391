"""Given events, when command, then events."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from contracts.base import Event
from contracts.errors import Rejected
from contracts.events import identity as e
from libs.domain import identity
from libs.domain.lifecycle import IDENTITY

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
USER = uuid4()

CREATIONS: list[tuple[identity.Command, Event]] = [
    (identity.CreateTenantGroup(name="acme"), e.TenantGroupCreated(at=NOW, name="acme")),
    (identity.CreateTenant(name="default"), e.TenantCreated(at=NOW, name="default")),
    (identity.CreateProject(key="core", name="Core"), e.ProjectCreated(at=NOW, key="core", name="Core")),
    (
        identity.RegisterUser(email="priya@example.com", name="Priya", roles=frozenset({"b", "a"})),
        e.UserRegistered(at=NOW, email="priya@example.com", name="Priya", kind="user", roles=("a", "b")),
    ),
    (
        identity.MintKey(kind="api_key", name="ci", roles=frozenset({"developer"}), scopes=frozenset({"read"})),
        e.KeyMinted(at=NOW, kind="api_key", name="ci", user_id=None, roles=("developer",), scopes=("read",)),
    ),
    (
        identity.MintKey(kind="personal_access_token", name="laptop", user_id=USER),
        e.KeyMinted(at=NOW, kind="personal_access_token", name="laptop", user_id=USER),
    ),
]


def given(*events: Event) -> identity.State:
    return identity.CATEGORY.fold(events)


@pytest.mark.parametrize("command, event", CREATIONS)
def test_a_thing_is_declared_once_and_repeating_it_changes_nothing(command: identity.Command, event: Event) -> None:
    assert identity.decide(command, given(), NOW).events == (event,)
    assert identity.decide(command, given(event), NOW + timedelta(days=1)).events == ()
    assert identity.CATEGORY.status(given(event)) in IDENTITY["absent"]


def test_what_is_declared_otherwise_is_taken() -> None:
    state = given(CREATIONS[3][1])
    with pytest.raises(Rejected) as refused:
        identity.decide(identity.RegisterUser(email="priya@example.com", name="Somebody"), state, NOW)
    assert (refused.value.code, refused.value.status) == ("identity.taken", 409)


@pytest.mark.parametrize(
    "birth, command, event",
    [
        (CREATIONS[3][1], identity.DeactivateUser(), e.UserDeactivated(at=NOW)),
        (CREATIONS[4][1], identity.RevokeKey(), e.KeyRevoked(at=NOW)),
        (CREATIONS[5][1], identity.RevokeKey(), e.KeyRevoked(at=NOW)),
    ],
)
def test_an_end_is_final(birth: Event, command: identity.Command, event: Event) -> None:
    assert identity.decide(command, given(birth), NOW).events == (event,)
    ended = given(birth, event)
    assert not ended.active
    assert ended.status in IDENTITY["active"]
    assert identity.decide(command, ended, NOW).events == ()
    again = next(creation for creation, created in CREATIONS if created == birth)
    with pytest.raises(Rejected) as refused:
        identity.decide(again, ended, NOW)
    assert refused.value.status == 409


@pytest.mark.parametrize("command", [identity.DeactivateUser(), identity.RevokeKey()])
def test_only_what_is_there_can_be_ended(command: identity.Command) -> None:
    for state in (given(), given(CREATIONS[2][1])):
        with pytest.raises(Rejected) as refused:
            identity.decide(command, state, NOW)
        assert refused.value.status == 404


@pytest.mark.parametrize(
    "command",
    [
        identity.MintKey(kind="personal_access_token", name="x"),
        identity.MintKey(kind="api_key", name="x", user_id=USER),
        identity.MintKey(kind="personal_access_token", name="x", user_id=USER, roles=frozenset({"platform_admin"})),
        identity.MintKey(kind="api_key", name="x", expires_at=NOW),
    ],
)
def test_a_key_that_could_not_be_right_is_refused(command: identity.Command) -> None:
    with pytest.raises(Rejected) as refused:
        identity.decide(command, given(), NOW)
    assert (refused.value.code, refused.value.status) == ("key.invalid", 422)


def test_the_head_row_shows_what_a_thing_is_known_by() -> None:
    assert identity.CATEGORY.columns(given(CREATIONS[3][1])) == {
        "kind": "user",
        "name": "priya@example.com",
        "owner": None,
        "holds": ["role:a", "role:b"],
    }
    assert identity.CATEGORY.columns(given(CREATIONS[5][1]))["owner"] == USER

"""Given events, when command, then events: whose grants are whose affair, and when one counts."""

from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID, uuid4

import pytest

from contracts.base import Event, Principal
from contracts.errors import Rejected
from contracts.events import identity as e
from libs.domain import grants, identity
from libs.domain.lifecycle import IDENTITY

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
SAM, ROBOT, GROUP = uuid4(), uuid4(), uuid4()


def caller(id_: UUID, *roles: str) -> Principal:
    return Principal(kind="user", id=id_, name="who", tenant_group=GROUP, tenant=GROUP, roles=frozenset(roles))


def give(
    by: Principal, user_id: UUID = SAM, user_kind: Literal["user", "service_user"] = "user", **more: Any
) -> grants.GiveGrant:
    fields = {"secret_id": UUID(int=1), **more}
    return grants.GiveGrant(principal=by, user_id=user_id, user_kind=user_kind, server_id="github", **fields)


def given(*events: Event) -> identity.State:
    return identity.CATEGORY.fold(events)


def fact(**more: Any) -> e.GrantGiven:
    fields = {"secret_id": UUID(int=1), "expires_at": None, "by": caller(SAM).actor, **more}
    return e.GrantGiven(at=NOW, user_id=SAM, server_id="github", **fields)


REVOKE = grants.RevokeGrant(by=caller(SAM).actor)
REVOKED = e.GrantRevoked(at=NOW, by=caller(SAM).actor)


def test_a_grant_is_given_once_and_telling_it_twice_changes_nothing() -> None:
    assert identity.decide(give(caller(SAM)), given(), NOW).events == (fact(),)
    assert identity.decide(give(caller(SAM)), given(fact()), NOW).events == ()


def test_another_secret_takes_the_place_of_the_first() -> None:
    other = give(caller(SAM), secret_id=UUID(int=2))
    assert identity.decide(other, given(fact()), NOW).events == (fact(secret_id=UUID(int=2)),)
    replaced = given(fact(), fact(secret_id=UUID(int=2)))
    assert identity.decide(give(caller(SAM)), replaced, NOW).events == (), "the first, told again by a late repetition"


def test_a_revoked_grant_may_be_given_again_under_another_secret() -> None:
    assert identity.decide(REVOKE, given(fact()), NOW).events == (REVOKED,)
    revoked = given(fact(), REVOKED)
    assert revoked.status in IDENTITY["active"]
    assert identity.decide(REVOKE, revoked, NOW).events == ()
    again = given(fact(), REVOKED, fact(secret_id=UUID(int=2)))
    assert again.status in IDENTITY["inactive"]
    assert again.grant is not None
    assert again.grant.usable(NOW)


def test_only_a_grant_can_be_revoked() -> None:
    for state in (given(), given(e.UserRegistered(at=NOW, email="a@b.c", name="a", kind="user"))):
        with pytest.raises(Rejected) as refused:
            identity.decide(REVOKE, state, NOW)
        assert (refused.value.code, refused.value.status) == ("grant.not_found", 404)


@pytest.mark.parametrize(
    "by, user_id, kind, allowed",
    [
        (caller(SAM), SAM, "user", True),
        (caller(ROBOT), ROBOT, "service_user", True),
        (caller(SAM, "platform_admin"), ROBOT, "service_user", True),
        (caller(SAM), ROBOT, "service_user", False),
        (caller(ROBOT, "platform_admin"), SAM, "user", False),
    ],
    ids=["one's own", "a service user itself", "administrator, service user", "anybody", "administrator, person"],
)
def test_nobody_gives_a_grant_in_anothers_name(
    by: Principal, user_id: UUID, kind: Literal["user", "service_user"], allowed: bool
) -> None:
    command = give(by, user_id, kind)
    if allowed:
        assert len(identity.decide(command, given(), NOW).events) == 1
        return
    with pytest.raises(Rejected) as refused:
        identity.decide(command, given(), NOW)
    assert (refused.value.code, refused.value.status) == ("grant.not_yours", 403)


def test_an_end_that_has_passed_ends_it() -> None:
    with pytest.raises(Rejected, match=r"grant\.invalid"):
        identity.decide(give(caller(SAM), expires_at=NOW), given(), NOW)
    ends = NOW + timedelta(hours=1)
    state = given(fact(expires_at=ends))
    assert state.grant is not None
    assert state.grant.usable(NOW)
    assert not state.grant.usable(ends)
    revoked = given(fact(), REVOKED).grant
    assert revoked is not None
    assert not revoked.usable(NOW)


def test_the_head_row_shows_whose_it_is_and_for_which_server() -> None:
    assert identity.CATEGORY.columns(given(fact())) == {"kind": "grant", "name": "github", "owner": SAM, "holds": []}

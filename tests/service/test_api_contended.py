"""A lost race is nobody's answer: the door asks again by itself, and says 503 only when the caller's time is over."""

from collections.abc import AsyncIterator, Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from contracts import ids
from contracts.base import Principal
from contracts.commands import CancelRun
from contracts.errors import Conflict, MinutebookError, Rejected, Stopping, Unavailable, from_problem, refusal
from contracts.replies import Reply, RunChanged
from libs.domain.grants import GiveGrant
from libs.ids import mint
from libs.owner.owner import ROUNDS_MAX
from services.api.identity import Identity
from tests.support.api import World, world
from tests.support.postgres import Database

LOST = Conflict("append.contended", "the stream was changed by others")


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database) as made:
        yield made


def losing(api: World, error: MinutebookError, *, times: int | None) -> list[CancelRun]:
    """Let cancels be answered so this often, for ever without a number; what was asked is kept."""
    asked: list[CancelRun] = []
    owner = api.bus.handlers[CancelRun.subject]

    async def answer(subject: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        asked.append(CancelRun.model_validate_json(data))
        if times is None or len(asked) <= times:
            return Reply[RunChanged](problem=refusal(error)).model_dump_json(serialize_as_any=True).encode()
        return await owner(subject, data, headers)

    api.bus.answer(CancelRun.subject, answer)
    return asked


@pytest.mark.parametrize(
    "error", [LOST, Stopping("bus.stopping", "draining"), Unavailable("postgres.contended", "deadlock", again=True)]
)
async def test_what_lost_to_others_is_asked_again_with_its_id(api: World, error: MinutebookError) -> None:
    run_id = await api.start()
    asked = losing(api, error, times=4)
    answer = await api.call("POST", f"/runs/{run_id}/cancel", json={"reason": "enough"})
    assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")
    assert len(asked) == 5
    assert len({command.command_id for command in asked}) == 1


async def test_what_loses_until_the_time_is_over_is_no_conflict_of_the_callers(api: World) -> None:
    run_id = await api.start()
    asked = losing(api, LOST, times=None)
    answer = await api.call("POST", f"/runs/{run_id}/cancel")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (503, "append.contended")
    assert int(answer.headers["retry-after"]) > 0
    assert problem["extra"]["command_id"] == str(asked[0].command_id)
    assert "again" not in problem
    assert (await api.get(f"/runs/{run_id}"))["state"] != "cancelled"


async def test_the_owners_own_no_is_not_asked_again(api: World) -> None:
    run_id = await api.start()
    for error in (Rejected("run.not_open", "over", status=409), Unavailable("postgres.full", "no room")):
        asked = losing(api, error, times=1)
        answer = await api.call("POST", f"/runs/{run_id}/cancel")
        assert (answer.status_code, answer.json()["code"], len(asked)) == (error.status, error.code, 1)


async def test_what_a_bulk_request_lost_is_asked_again_for_each_run(api: World) -> None:
    run_id = await api.start()
    losing(api, LOST, times=3)
    body: dict[str, Any] = {"act": "cancel", "filter": {"definition": "story"}, "confirm": 1}
    answer = (await api.call("POST", "/runs:bulk", json=body)).json()
    [item] = answer["items"]
    assert (item["run"]["run_id"], item["run"]["state"]) == (str(run_id), "cancelled"), answer


def test_a_lost_race_stays_one_over_the_wire_and_for_replicas_that_do_not_know_of_it() -> None:
    for lost in (LOST, Conflict("admission.restless", "runs changed"), Stopping("bus.stopping", "draining")):
        carried = from_problem(refusal(lost))
        assert isinstance(carried, Unavailable), "never a Rejected: the domain has not said no"
        assert (carried.again, carried.status, carried.code) == (True, 503, lost.code)
        older = from_problem(lost.problem())
        assert (isinstance(older, Unavailable), older.again) == (True, False)


class Raced:
    """A store in which somebody else writes first, so many times."""

    def __init__(self, world: World, *, times: int, grant_id: UUID, admin: Principal) -> None:
        self._inner = world.store
        self._rival = world.identity
        self._place = world.place
        self._grant_id, self._admin = grant_id, admin
        self.left = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def append(self, category: str, appends: Any) -> Any:
        if self.left:
            self.left -= 1
            await self._rival.do(self._place, self._grant_id, given(self._admin))
        return await self._inner.append(category, appends)


def given(admin: Principal) -> GiveGrant:
    return GiveGrant(principal=admin, user_id=admin.id, user_kind="user", server_id="tracker", secret_id=mint())


@pytest.mark.parametrize(("patience", "taken"), [(timedelta(seconds=30), True), (timedelta(0), False)])
async def test_the_door_persists_with_what_it_writes_itself(api: World, patience: timedelta, *, taken: bool) -> None:
    user_id = api.users["admin"]
    admin = Principal(
        kind="user",
        id=user_id,
        name="admin@example.com",
        tenant_group=api.place.tenant_group,
        tenant=api.place.tenant,
        roles=frozenset({"platform_admin"}),
    )
    grant_id = ids.grant(api.place.tenant_group, user_id, "tracker")
    store: Any = Raced(api, times=ROUNDS_MAX + 1, grant_id=grant_id, admin=admin)
    identity, command = Identity(store, api.bus, patience=patience), given(admin)
    if taken:
        state = await identity.do(api.place, grant_id, command)
        assert state.grant is not None
        assert (state.grant.secret_id, store.left) == (command.secret_id, 0)
        return
    with pytest.raises(Conflict) as caught:
        await identity.do(api.place, grant_id, command)
    assert (caught.value.code, caught.value.status) == ("append.contended", 503)

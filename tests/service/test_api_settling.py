"""Settling over the door: a verdict names the call that it is on, and who may give one the domain says alone."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from typer.testing import CliRunner

from contracts.errors import MinutebookError
from libs.domain import effect
from libs.domain.effect import Begin, Doubt
from libs.owner import Item, Owner, Publisher
from libs.process import actor
from libs.process.http import listen, serve
from minutebook.cli.main import build
from minutebook.cli.session import Exit
from services.effects.app import build as build_effects
from tests.support.api import World, world
from tests.support.postgres import Database

ARM = 1


@pytest.fixture
async def api(database: Database) -> AsyncIterator[World]:
    async with world(database, services=[build_effects]) as made:
        yield made


@pytest.fixture
async def doubted(api: World) -> UUID:
    """A write whose second call is in doubt, and over everywhere."""
    run_id, decision_id = await api.waiting()
    await api.call("POST", f"/decisions/{decision_id}/approve", by="priya")
    await api.plan(run_id)
    [declared] = (await api.get("/effects"))["items"]
    effect_id, claim = UUID(declared["effect_id"]), uuid4()
    owner: Owner[effect.State, effect.Command] = Owner(
        effect.CATEGORY, effect.decide, store=api.store, publisher=Publisher(api.bus, api.store)
    )
    commands: list[effect.Command] = [
        Begin(claim=claim, arm=ARM, over_within=timedelta(0)),
        Doubt(claim=claim, reason="no answer came"),
    ]
    results = await owner.handle(
        [Item(stream_id=effect_id, command=c, actor=actor("effects"), causation=uuid4()) for c in commands]
    )
    assert not [result for result in results if isinstance(result, MinutebookError)]
    return effect_id


async def settle(api: World, effect_id: UUID, *, by: str = "admin", **body: Any) -> tuple[int, str]:
    answer = await api.call("POST", f"/effects/{effect_id}/settle", by=by, json=body)
    return answer.status_code, answer.json().get("code", answer.json().get("state"))


async def test_a_verdict_names_its_call(api: World, doubted: UUID) -> None:
    refused = await api.call("POST", f"/effects/{doubted}/settle", json={"verdict": "landed"})
    assert (refused.status_code, refused.json()["code"]) == (422, "request.invalid")
    assert [error["path"] for error in refused.json()["errors"]] == ["arm"]
    assert await settle(api, doubted, verdict="landed", arm=-1) == (422, "request.invalid")
    assert await settle(api, doubted, verdict="landed", arm=ARM - 1) == (409, "effect.stale")
    assert await settle(api, doubted, verdict="landed", arm=ARM) == (200, "succeeded")


async def test_a_key_repeats_the_verdict_on_one_call_and_not_on_a_later_one(api: World, doubted: UUID) -> None:
    path, headers = f"/effects/{doubted}/settle", {"idempotency-key": "k"}
    for arm, status in ((ARM, 200), (ARM, 200), (ARM + 1, 409)):
        answer = await api.call("POST", path, json={"verdict": "not_landed", "arm": arm}, headers=headers)
        assert answer.status_code == status, answer.text


async def test_who_may_settle_and_probe_is_said_by_the_owner(api: World, doubted: UUID) -> None:
    assert await settle(api, doubted, by="dana", verdict="landed", arm=ARM) == (403, "effect.not_yours")
    assert await settle(api, doubted, by="gus", verdict="landed", arm=ARM) == (404, "effect.not_found")
    probed = await api.call("POST", f"/effects/{doubted}/probe", by="dana")
    assert (probed.status_code, probed.json()["code"]) == (403, "effect.not_yours")
    assert (await api.get(f"/effects/{doubted}"))["state"] == "in_doubt"


async def test_the_command_says_which_call_it_settles_and_since_when_it_is_in_doubt(api: World, doubted: UUID) -> None:
    shown = await api.get(f"/effects/{doubted}")
    assert (shown["arm"], shown["doubted_at"]) == (ARM, shown["changed_at"])
    running = await serve(api.service.app, listen("127.0.0.1", 0), drain=timedelta(seconds=1))
    environment = {"MINUTEBOOK_SERVER_ADDRESS": running.url, "MINUTEBOOK_API_KEY": api.tokens["admin"]}

    async def run(*arguments: str) -> Any:
        command = ["effects", "settle", str(doubted), *arguments]
        return await asyncio.to_thread(CliRunner(env=environment).invoke, build(), ["--json", *command])

    try:
        stale = await run("landed", "--arm", str(ARM - 1))
        assert (stale.exit_code, "effect.stale" in stale.stderr) == (Exit.REFUSED, True), stale.output
        done = await run("landed", "--reference", "CORE-7")
    finally:
        await running.stop()
    assert done.exit_code == Exit.OK, done.output
    assert f"in doubt of tracker.create at post: the call of arm {ARM}, since 20" in done.stderr
    assert json.loads(done.stdout)["state"] == "succeeded"
    assert (await api.get(f"/effects/{doubted}"))["doubted_at"] is None

"""The effects service killed at each place of a notice's path: a webhook comes again, an e-mail does not."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest

from libs.faultpoints import VARIABLE
from tests.support.notices import SECRET, World, open_world
from tests.support.postgres import Database
from tests.support.receivers import receiver
from tests.support.record import eventually

_SERVICE: Final = """
import asyncio, json, sys
from uuid import UUID

from tests.support.postgres import Database
from tests.support.record import ListeningBus, open_record
from services.effects.app import build


async def main(app_dsn, owner_dsn, secrets, type_, stream_id):
    bus = ListeningBus()
    async with open_record(Database("", owner_dsn, app_dsn)) as record:
        service = build(await record.tools(bus, secrets=json.loads(secrets)))
        await service.start()
        await bus.tell("effects-notices", type_, UUID(stream_id))
        await asyncio.Event().wait()


asyncio.run(main(*sys.argv[1:]))
"""

OVER: Final = timedelta(seconds=30)
"""By then a try has ended everywhere: start, send and margin by their defaults."""


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with open_world(database) as world:
        yield world


async def start(place: str, world: World, type_: str, stream_id: UUID) -> asyncio.subprocess.Process:
    """Run the service in a process of its own, which is told of a fact and dies at a fault point where one is named."""
    dsns: Database = world.record.database
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _SERVICE,
        dsns.app_dsn,
        dsns.owner_dsn,
        json.dumps(world.secrets),
        type_,
        str(stream_id),
        cwd=Path(__file__).parents[2],
        env={**os.environ, VARIABLE: place},
        stdout=subprocess.DEVNULL,
    )


async def killed_at(place: str, world: World, type_: str, stream_id: UUID) -> int:
    """Run it until it dies; returns how."""
    process = await start(place, world, type_, stream_id)
    try:
        async with asyncio.timeout(30):
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()


async def due(world: World) -> UUID:
    """A notice that is raised and not begun."""
    _, bus = await world.service()
    await bus.tell("effects-notices", "decision.opened", await world.decide())
    [notice_id] = await world.notices("due")
    return notice_id


async def test_a_kill_after_raising_raises_nothing_twice(world: World, tmp_path: Path) -> None:
    await world.channel("ops", "webhook", "http://127.0.0.1:1", "decision.opened")
    decision_id = await world.decide()
    assert await killed_at("notice.raised", world, "decision.opened", decision_id) == -signal.SIGKILL
    _, bus = await world.service()
    await bus.tell("effects-notices", "decision.opened", decision_id)
    [notice_id] = await world.notices()
    assert await world.record.types("notice", notice_id) == ["notice.raised"]


@pytest.mark.parametrize(("place", "sent"), [("notice.sending", 0), ("notice.sent", 1)])
async def test_a_webhook_of_a_killed_process_is_sent_again_under_its_id(
    world: World, tmp_path: Path, place: str, sent: int
) -> None:
    async with receiver("http", tmp_path / "http", secret=SECRET) as http:
        await world.channel("ops", "webhook", http.url, "decision.opened")
        notice_id = await due(world)
        assert await killed_at(place, world, "notice.raised", notice_id) == -signal.SIGKILL
        assert len(http.all()) == sent
        await until_over(world, notice_id)
        await world.until("due")
        _, bus = await world.service()
        await world.record.shift(timedelta(seconds=10))
        await bus.wake("effects", "notice", notice_id)
        await world.until("sent")
        assert [taken["headers"]["webhook-id"] for taken in http.all()] == [str(notice_id)] * (sent + 1)


@pytest.mark.parametrize(("place", "sent"), [("notice.sending", 0), ("notice.sent", 1)])
async def test_an_e_mail_of_a_killed_process_is_in_doubt_and_sent_once_at_most(
    world: World, tmp_path: Path, place: str, sent: int
) -> None:
    async with receiver("smtp", tmp_path / "smtp") as smtp:
        await world.channel("mail", "email", smtp.url, "decision.opened", to=("desk@example.com",))
        notice_id = await due(world)
        assert await killed_at(place, world, "notice.raised", notice_id) == -signal.SIGKILL
        await until_over(world, notice_id)
        await world.until("in_doubt")
        assert len(smtp.all()) == sent


@pytest.mark.parametrize("kind", ["webhook", "email"])
async def test_a_kill_while_the_receiver_has_it_and_has_not_answered(world: World, tmp_path: Path, kind: str) -> None:
    async with receiver("http" if kind == "webhook" else "smtp", tmp_path / kind, secret="") as taken:
        more = {"to": ("desk@example.com",)} if kind == "email" else {}
        await world.channel("it", kind, taken.url, "decision.opened", **more)
        notice_id = await due(world)
        taken.misbehave("hang")
        process = await start("", world, "notice.raised", notice_id)
        try:

            async def came() -> bool:
                return len(taken.all()) == 1

            await eventually(came, within=timedelta(seconds=30))
        finally:
            process.kill()
            await process.wait()
        await until_over(world, notice_id)
        await world.until("due" if kind == "webhook" else "in_doubt")
        assert len(taken.all()) == 1


async def until_over(world: World, notice_id: UUID) -> None:
    """Another process looks: nothing is decided before the try has ended everywhere, then it is."""
    _, bus = await world.service()
    await bus.tell("effects-notices", "notice.raised", notice_id)
    await bus.wake("effects", "notice", notice_id)
    await world.until("sending")
    await world.record.shift(OVER)
    await bus.wake("effects", "notice", notice_id)

"""The api on a real nats-server that goes away and comes back."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from libs.bus.declare import declare
from libs.bus.jetstream import JetStreamBus
from services.dev.nats_server import RunningNats, start_nats
from tests.support.api import WEBHOOK_SECRET, World, world
from tests.support.postgres import Database

JIRA = {"webhookEvent": "jira:issue_created", "timestamp": 1, "issue": {"id": "1", "key": "CORE-1", "fields": {}}}


@pytest.fixture
async def nats(tmp_path: Path) -> AsyncIterator[RunningNats]:
    running = await start_nats(tmp_path)
    await declare(running.url)
    yield running
    await running.stop()


@pytest.fixture
async def api(database: Database, nats: RunningNats) -> AsyncIterator[World]:
    async with world(database, bus=JetStreamBus(nats.url, name="api")) as made:
        yield made


async def test_asks_travel_over_the_bus_and_its_absence_is_survived(
    api: World, nats: RunningNats, tmp_path: Path
) -> None:
    run_id = await api.start()
    assert (await api.call("GET", "/readyz", by=None)).status_code == 200

    await nats.stop()
    await _until(api, "/readyz", 503)
    began = time.monotonic()
    body = json.dumps(JIRA).encode()
    signature = "sha256=" + hmac.new(WEBHOOK_SECRET.encode(), body, hashlib.sha256).hexdigest()
    accepted = await api.http.post(
        "/api/public/workflows/events/jira", content=body, headers={"x-hub-signature-256": signature}
    )
    assert accepted.status_code == 202
    assert time.monotonic() - began < 5
    assert (await api.call("GET", f"/runs/{run_id}")).status_code == 200
    refused = await api.call("POST", f"/runs/{run_id}/suspend", by="dana")
    assert (refused.status_code, refused.json()["code"]) == (503, "ask.unanswered")

    again = await start_nats(tmp_path, port=nats.port)
    try:
        await _until(api, "/readyz", 200)
        suspended = await api.call("POST", f"/runs/{run_id}/suspend", by="dana")
        assert (suspended.status_code, suspended.json()["state"]) == (200, "suspended")
    finally:
        await again.stop()


async def _until(api: World, path: str, status: int) -> None:
    async with asyncio.timeout(20):
        while (await api.call("GET", path, by=None)).status_code != status:  # noqa: ASYNC110  another process's state
            await asyncio.sleep(0.05)

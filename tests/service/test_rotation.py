"""Secrets change in their files while services run, and count from their next use."""

import asyncio
import hashlib
import hmac
import json
from pathlib import Path
from uuid import uuid4

from libs.config import Secrets
from libs.sealing import KEY_REF, PREVIOUS_REF, Sealing, new_key
from libs.vault import PAGE, Vault
from services.api.resealing import Resealing
from tests.support.api import world
from tests.support.effects import SEALING_KEY, TOKEN, open_world
from tests.support.postgres import Database

EVENTS = "/api/public/workflows/events/jira"
JIRA = {
    "webhookEvent": "jira:issue_updated",
    "issue": {"id": "10042", "key": "CORE-142", "fields": {"summary": "Say why", "project": {"key": "CORE"}}},
    "user": {"displayName": "Priya"},
}


async def test_a_webhook_secret_is_rotated_with_an_overlap_and_nothing_is_turned_away(
    database: Database, tmp_path: Path
) -> None:
    secret, previous = tmp_path / "jira_webhook_secret", tmp_path / "jira_webhook_secret_previous"
    async with world(database, secrets=Secrets(tmp_path)) as api:

        async def answered(number: int, key: str) -> int:
            body = json.dumps(JIRA | {"timestamp": 1_772_400_000_000 + number}).encode()
            signature = "sha256=" + hmac.new(key.encode(), body, hashlib.sha256).hexdigest()
            headers = {"x-hub-signature-256": signature}
            return (await api.http.post(EVENTS, content=body, headers=headers)).status_code

        assert await answered(1, "old") == 503, "a source whose secret is not there yet is told to try again"
        secret.write_text("old\n")
        assert await answered(2, "old") == 202
        assert await answered(3, "new") == 401
        previous.write_text("old")
        secret.write_text("new")
        assert [await answered(4, "old"), await answered(5, "new"), await answered(6, "another")] == [202, 202, 401]
        previous.unlink()
        assert [await answered(7, "old"), await answered(8, "new")] == [401, 202]


async def test_the_token_of_a_server_is_rotated_between_two_writes(database: Database, tmp_path: Path) -> None:
    async with open_world(database, tmp_path) as made:
        folder = tmp_path / "secrets"
        folder.mkdir()
        (folder / "github_mcp_url").write_text(f"{made.http.url}/mcp\n")
        (folder / "github_token").write_text("an old token")
        _, bus = await made.service(Secrets(folder))
        for token, state in (("an old token", "failed"), (TOKEN, "succeeded")):
            (folder / "github_token").write_text(f"{token}\n")
            effect_id = await made.declare(await made.run())
            await bus.tell("effects-history", "effect.declared", effect_id)
            await made.until(effect_id, state)
        assert len(made.target.calls()) == 1


async def test_what_a_rotated_key_sealed_is_sealed_anew_and_the_previous_key_may_go(
    database: Database, tmp_path: Path
) -> None:
    async with open_world(database, tmp_path) as made:
        (tmp_path / KEY_REF).write_text(SEALING_KEY)
        kept = Secrets(tmp_path)
        vault = Vault(made.record.pool, Sealing(kept))
        group, grant_id = made.record.group, uuid4()
        before, after = [uuid4() for _ in range(PAGE + 3)], uuid4()
        for secret_id in before:
            await vault.keep(group, grant_id, secret_id, f"kept before {secret_id}")
        assert await vault.reseal() == 0
        (tmp_path / PREVIOUS_REF).write_text(SEALING_KEY)
        (tmp_path / KEY_REF).write_text(new_key())
        await vault.keep(group, grant_id, after, "kept after")
        assert await vault.open(group, grant_id, before[0]) == f"kept before {before[0]}"
        written = await made.record.pool.fetch("select secret_id, written_at from grant_secrets order by 1")

        await asyncio.gather(*(Resealing(kept, vault).look() for _ in range(3)))

        (tmp_path / PREVIOUS_REF).unlink()
        assert [await vault.open(group, grant_id, each) for each in (before[0], before[-1], after)] == [
            f"kept before {before[0]}",
            f"kept before {before[-1]}",
            "kept after",
        ]
        assert await made.record.pool.fetch("select secret_id, written_at from grant_secrets order by 1") == written
        assert await vault.reseal() == 0


async def test_a_key_that_is_missing_is_said_and_nothing_is_lost(database: Database, tmp_path: Path) -> None:
    async with open_world(database, tmp_path) as made:
        (tmp_path / KEY_REF).write_text(SEALING_KEY)
        vault = Vault(made.record.pool, Sealing(Secrets(tmp_path)))
        group, grant_id, secret_id = made.record.group, uuid4(), uuid4()
        await vault.keep(group, grant_id, secret_id, "kept")
        (tmp_path / KEY_REF).write_text(new_key())
        (tmp_path / PREVIOUS_REF).write_text(new_key())
        await Resealing(Secrets(tmp_path), vault).look()
        (tmp_path / PREVIOUS_REF).write_text(SEALING_KEY)
        assert await vault.open(group, grant_id, secret_id) == "kept"

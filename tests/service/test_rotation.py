"""Secrets change in their files while services run, and count from their next use."""

import hashlib
import hmac
import json
from pathlib import Path
from uuid import uuid4

from libs.config import Secrets
from libs.sealing import KEY_REF, PREVIOUS_REF, Sealing, new_key
from libs.vault import Vault
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


async def test_a_grant_sealed_before_a_rotation_of_the_key_opens_after_it(database: Database, tmp_path: Path) -> None:
    async with open_world(database, tmp_path) as made:
        keys = tmp_path
        (keys / KEY_REF).write_text(SEALING_KEY)
        vault = Vault(made.record.pool, Sealing(Secrets(keys)))
        group, grant_id, first, second = made.record.group, uuid4(), uuid4(), uuid4()
        await vault.keep(group, grant_id, first, "kept before")
        (keys / PREVIOUS_REF).write_text(SEALING_KEY)
        (keys / KEY_REF).write_text(new_key())
        assert await vault.open(group, grant_id, first) == "kept before"
        await vault.keep(group, grant_id, second, "kept after")
        (keys / PREVIOUS_REF).unlink()
        assert await vault.open(group, grant_id, second) == "kept after"

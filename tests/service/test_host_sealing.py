"""The installation's sealing key: made once, said when it is missing, never replaced by chance."""

import json
from pathlib import Path

import asyncpg
import pytest

from minutebook.cli.session import Exit
from tests.support.postgres import Database
from tests.support.stack import command

PROVISION = ("provision", "--group", "g", "--key", "k", "--sealing-key", "--json")


@pytest.fixture
def env(database: Database, nats_url: str, tmp_path: Path) -> dict[str, str]:
    env = {"MINUTEBOOK_POSTGRES_DSN": database.owner_dsn, "MINUTEBOOK_NATS_URL": nats_url}
    assert command("migrate", cwd=tmp_path, **env).returncode == 0
    return env


def test_it_is_written_into_the_folder_of_secrets_once(env: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "secrets"
    folder.mkdir()
    with_folder = {**env, "MINUTEBOOK_SECRETS_DIR": str(folder)}
    first = json.loads(command(*PROVISION, cwd=tmp_path, **with_folder).stdout)["sealing_key"]
    path = folder / "sealing_key"
    assert first == {"existed": False, "path": str(path), "secret": None}
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.read_text()
    again = json.loads(command(*PROVISION, cwd=tmp_path, **with_folder).stdout)["sealing_key"]
    assert again == {"existed": True, "path": None, "secret": None}
    assert path.read_text() == kept


def test_without_a_folder_it_is_shown(env: dict[str, str], tmp_path: Path) -> None:
    made = json.loads(command(*PROVISION, cwd=tmp_path, **env).stdout)["sealing_key"]
    assert made["path"] is None
    given = {**env, "MINUTEBOOK_SECRET_SEALING_KEY": made["secret"]}
    assert json.loads(command(*PROVISION, cwd=tmp_path, **given).stdout)["sealing_key"]["existed"]


async def test_none_is_made_while_something_is_sealed_with_another(
    env: dict[str, str], pool: asyncpg.Pool, tmp_path: Path
) -> None:
    await pool.execute(
        "insert into grant_secrets (secret_id, tenant_group, grant_id, sealed) "
        "values (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), 'sealed')"
    )
    refused = command(*PROVISION, cwd=tmp_path, **env)
    assert refused.returncode == Exit.REFUSED
    assert "sealing.key_lost" in refused.stderr


def test_serve_refuses_to_go_without_it_and_with_what_is_none(env: dict[str, str], tmp_path: Path) -> None:
    without = command("serve", "decision", cwd=tmp_path, **env)
    assert without.returncode == Exit.USAGE
    assert "the installation has no sealing key" in without.stderr
    assert "minutebook provision --sealing-key" in without.stderr


def test_nobody_is_registered_without_it(env: dict[str, str], tmp_path: Path) -> None:
    person = ("provision", "--group", "g", "--key", "k", "--user", "dana@example.com")
    refused = command(*person, cwd=tmp_path, **env)
    assert refused.returncode == Exit.USAGE
    assert "sealing.no_key" in refused.stderr
    assert json.loads(command(*person, "--sealing-key", "--json", cwd=tmp_path, **env).stdout)["user"]


def test_serve_refuses_what_is_no_key(env: dict[str, str], tmp_path: Path) -> None:
    refused = command("serve", "decision", cwd=tmp_path, **env, MINUTEBOOK_SECRET_SEALING_KEY="s3cret")
    assert refused.returncode == Exit.USAGE
    assert "the secret sealing_key is not base64 of 32 bytes" in refused.stderr
    assert "s3cret" not in refused.stderr

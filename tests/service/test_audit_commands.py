"""`minutebook audit` and `rebuild` as an operator runs them: on a database, with exit codes and JSON."""

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.audited import SEED, Audited, audited, key
from tests.support.postgres import PostgresServer
from tests.support.stack import command


@pytest.fixture
async def record(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[Audited]:
    async with audited(postgres_server, tmp_path) as record:
        yield record


def run(record: Audited, folder: Path, *args: str | Path) -> subprocess.CompletedProcess[str]:
    return command(
        *args,
        cwd=folder,
        MINUTEBOOK_POSTGRES_DSN=record.database.owner_dsn,
        MINUTEBOOK_SECRET_SEAL_SIGNING_KEY=SEED,
    )


async def test_a_record_that_holds_is_said_to_hold(record: Audited, tmp_path: Path) -> None:
    sealed = run(record, tmp_path, "audit", "seals", "--out", "seals.jsonl", "--json")
    assert [seal["number"] for seal in json.loads(sealed.stdout)] == [1, 2]
    verified = run(record, tmp_path, "audit", "verify", "--seals", "seals.jsonl")
    assert (verified.returncode, verified.stdout.splitlines()[-1]) == (0, "the record holds")


async def test_a_record_that_does_not_hold_ends_with_1_and_says_where(record: Audited, tmp_path: Path) -> None:
    await record.forge(f"delete from run_heads where stream_id = '{record.runs['one']}'")
    verified = run(record, tmp_path, "audit", "verify")
    assert verified.returncode == 1
    assert verified.stdout.splitlines()[0].startswith(f"DAMAGED   head: run {record.runs['one']}: ")
    rebuilt = run(record, tmp_path, "rebuild", "--json")
    assert (rebuilt.returncode, json.loads(rebuilt.stdout)["skipped"]) == (0, [])
    verified = run(record, tmp_path, "audit", "verify", "--json")
    assert (verified.returncode, json.loads(verified.stdout)["findings"]) == (0, [])


async def test_a_run_is_replayed_and_a_bundle_is_made(record: Audited, tmp_path: Path) -> None:
    one = str(record.runs["one"])
    assert "version 1 of" in run(record, tmp_path, "audit", "replay", one, "--at", "1").stdout
    made = run(record, tmp_path, "audit", "export", "--out", "bundle.zip", "--run", one, "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["public_key"] == key().public.hex()
    assert (tmp_path / "bundle.zip").is_file()


async def test_what_is_missing_is_said(record: Audited, tmp_path: Path) -> None:
    nowhere = command("audit", "verify", cwd=tmp_path)
    assert (nowhere.returncode, "MINUTEBOOK_POSTGRES_DSN" in nowhere.stderr) == (2, True)
    dsn = record.database.owner_dsn
    keyless = command("audit", "export", "--out", "b.zip", cwd=tmp_path, MINUTEBOOK_POSTGRES_DSN=dsn)
    assert (keyless.returncode, "seal_signing_key" in keyless.stderr) == (1, True)
    (tmp_path / "bad.jsonl").write_text("{}\n")
    assert "line 1 is no seal" in run(record, tmp_path, "audit", "verify", "--seals", "bad.jsonl").stderr

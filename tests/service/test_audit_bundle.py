"""What is taken away can be checked by somebody else, offline, with nothing of ours; one flipped byte shows."""

import random
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from contracts.errors import Rejected
from libs.audit import offline
from libs.audit.exporting import Exported, Scope, export
from libs.audit.replaying import replay
from tests.support.audited import RING, SEED, Audited, audited, key
from tests.support.postgres import PostgresServer

NOW = datetime(2026, 11, 30, tzinfo=UTC)


@pytest.fixture
async def record(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[Audited]:
    async with audited(postgres_server, tmp_path) as record:
        yield record


async def bundle(record: Audited, folder: Path, **scope: Any) -> tuple[Path, Exported]:
    """Export, and return the bundle unpacked."""
    out = folder / "bundle.zip"
    exported = await export(record.pool, out, scope=Scope(**scope), key=key(), ring=RING, now=NOW)
    unpacked = folder / "unpacked"
    with zipfile.ZipFile(out) as archive:
        archive.extractall(unpacked)
    return unpacked, exported


def check(path: Path, *args: str) -> tuple[int, str]:
    """Run the script that lies in the bundle, as a third party would: in an interpreter that knows nothing of ours."""
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-B", path / "verify.py", *args],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert not ran.stderr, ran.stderr
    return ran.returncode, ran.stdout


def drafts(folder: Path) -> list[Path]:
    return list(folder.glob(".bundle*"))


def judged(folder: Path) -> list[str]:
    """What the script finds, called in this process: a thousand times is too much for a thousand interpreters."""
    found = offline.Check(offline.Folder(folder), None)
    try:
        found.run()
    except Exception as error:
        found.wrong.append(str(error))
    return found.wrong


async def test_a_bundle_of_everything_holds(record: Audited, tmp_path: Path) -> None:
    unpacked, exported = await bundle(record, tmp_path)
    code, said = check(unpacked)
    assert (code, said.splitlines()[-1]) == (0, "Everything holds.")
    assert f"{exported.facts} facts of {exported.streams} streams" in said
    assert check(unpacked, str(tmp_path / "bundle.zip"), "--key", key().public.hex())[0] == 0
    code, said = check(unpacked, "--key", "0" * 64)
    assert (code, "not by the key that you named" in said) == (1, True)
    assert (exported.missing, exported.seals) == (0, 2)
    assert (tmp_path / "bundle.zip").stat().st_mode & 0o777 == 0o600
    assert not drafts(tmp_path)


async def test_one_flipped_byte_anywhere_shows(record: Audited, tmp_path: Path) -> None:
    unpacked, _ = await bundle(record, tmp_path)
    drawn = random.Random(4711)
    files = sorted(path for path in unpacked.rglob("*") if path.is_file())
    assert judged(unpacked) == []
    for path in files:
        whole = path.read_bytes()
        places = {0, len(whole) - 1, *(drawn.randrange(len(whole)) for _ in range(3))} if whole else set()
        for place in places:
            flipped = bytearray(whole)
            flipped[place] ^= 1 << drawn.randrange(8)
            path.write_bytes(flipped)
            assert judged(unpacked), f"bit flipped at byte {place} of {path.relative_to(unpacked)}"
        path.write_bytes(whole)
    for path in drawn.sample(files, 5):
        aside = path.read_bytes()
        path.unlink()
        assert judged(unpacked), f"{path.name} was taken away"
        path.write_bytes(aside)
    (unpacked / "planted.txt").write_text("more")
    assert judged(unpacked) == ["planted.txt is not in the manifest"]


async def test_what_is_signed_anew_by_somebody_else_does_not_hold_against_the_seals(
    record: Audited, tmp_path: Path
) -> None:
    """Somebody with a key of their own exports a changed record: the seals are not theirs to make."""
    run = record.runs["one"]
    await record.forge(
        f"delete from workflow_history e using run_heads h where h.stream_id = '{run}' and e.stream_id = h.stream_id"
        " and e.version = h.version"
    )
    unpacked, _ = await bundle(record, tmp_path)
    code, said = check(unpacked)
    assert code == 1
    assert re.search(f"stream {run} was sealed at version [0-9]+, and ends before it", said)


async def test_a_bundle_of_a_run_has_the_run_and_what_belongs_to_it_alone(record: Audited, tmp_path: Path) -> None:
    unpacked, exported = await bundle(record, tmp_path, runs=(record.runs["one"],))
    assert check(unpacked)[0] == 0
    history = (unpacked / "history.jsonl").read_text()
    assert str(record.runs["one"]) in history
    assert str(record.runs["two"]) not in history
    assert {"run", "attempt", "decision", "effect"} == set(re.findall(r'"category":"([a-z]+)"', history))
    assert exported.blobs > 0


async def test_scopes_by_time_and_group(record: Audited, tmp_path: Path) -> None:
    group = await record.pool.fetchval("select tenant_group from run_heads limit 1")
    _, everything = await bundle(record, tmp_path, tenant_group=group)
    later = await record.pool.fetchval("select max(recorded_at) from workflow_history")
    shutil.rmtree(tmp_path / "unpacked")
    unpacked, some = await bundle(record, tmp_path, since=later)
    assert check(unpacked)[0] == 0
    assert 0 < some.streams < everything.streams
    with pytest.raises(Rejected, match="nothing in the history"):
        await bundle(record, tmp_path, since=later + timedelta(seconds=1))


async def test_no_secret_is_in_a_bundle(record: Audited, tmp_path: Path) -> None:
    unpacked, _ = await bundle(record, tmp_path)
    whole = b"".join(path.read_bytes() for path in unpacked.rglob("*") if path.is_file())
    for secret in (record.secret, SEED, "a secret of the test", "let me in"):
        assert secret.encode() not in whole


async def test_a_run_is_shown_as_it_stood_at_any_version(record: Audited) -> None:
    run = record.runs["one"]
    last = await replay(record.pool, run)
    assert (last.version, last.state.status, last.broken) == (last.versions, "completed", None)
    assert {child.category: child.state.status for child in last.children} == {
        "decision": "answered",
        "effect": "succeeded",
        "attempt": "succeeded",
    }
    first = await replay(record.pool, run, at=1)
    assert (first.fact.type, first.state.status, first.children) == ("run.created", "created", ())
    seen = [await replay(record.pool, run, at=version) for version in range(1, last.versions + 1)]
    parked = next(each for each in seen if each.state.status == "waiting_decision")
    assert [(child.category, child.state.status) for child in parked.children] == [
        ("decision", "open"),
        ("attempt", "succeeded"),
    ]
    shown = parked.as_json()
    assert (shown["version"], shown["state"]["status"], shown["chain"]) == (parked.version, "waiting_decision", "holds")
    with pytest.raises(Rejected, match=f"versions 1 to {last.versions}"):
        await replay(record.pool, run, at=last.versions + 1)
    with pytest.raises(Rejected, match="no run"):
        await replay(record.pool, UUID(int=1))

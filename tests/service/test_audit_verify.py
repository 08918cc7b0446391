"""A record that real services wrote, changed in each way that a superuser has: each is seen, and named."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from contracts import ids
from contracts.base import Event
from contracts.events.effect import EffectDeclared, EffectPending, EffectSucceeded
from contracts.events.run import UserRef
from libs.audit import witness
from libs.audit.findings import Finding
from libs.audit.merkle import Tree
from libs.audit.seals import leaves_of, seals_of
from libs.audit.signing import Keyring, key_id
from libs.audit.verification import Report, check_record
from libs.audit.witness import Witness
from libs.domain import effect, run
from libs.eventstore.postgres import PostgresStore
from libs.eventstore.snapshots import Kept, Snapshots
from libs.ids import mint
from libs.postgres import open_pool
from tests.conformance.test_store_samples import AT, BLOB
from tests.support.audited import RING, Audited, audited, key
from tests.support.postgres import PostgresServer
from tests.support.record import Record


@pytest.fixture
async def record(postgres_server: PostgresServer, tmp_path: Path) -> AsyncIterator[Audited]:
    async with audited(postgres_server, tmp_path) as record:
        yield record


async def report(record: Audited, *, ring: Keyring = RING, held: Witness | None = None) -> Report:
    return await check_record(record.pool, ring, witness=held)


async def findings(record: Audited, *, held: Witness | None = None) -> list[Finding]:
    return list((await report(record, held=held)).findings)


async def exported(record: Audited) -> Witness:
    """The seals as a witness took them away."""
    tree = Tree([leaf.hash async for leaf in leaves_of(record.pool)])
    return witness.read(witness.written(await seals_of(record.pool), [key().public], tree))


async def test_a_record_that_nobody_touched_is_proven(record: Audited) -> None:
    seen: list[str] = []
    found = await check_record(
        record.pool, RING, witness=await exported(record), progress=lambda what, _: seen.append(what)
    )
    assert found.findings == ()
    assert (found.effects, found.sealed.seals) == (2, 2)
    assert found.sealed.leaves > found.streams / 2
    assert {"streams", "effects"} <= set(seen)
    assert found.as_json()["ok"] is True


CHANGES = {
    "a fact": ("update workflow_history set payload = '{{}}' where type = 'decision.answered' and {two}", "chain"),
    "who did it": ("update workflow_history set metadata = '{{}}' where type = 'decision.answered' and {two}", "chain"),
    "a head": ("update run_heads set state = 'failed' where stream_id = '{one}'", "head"),
    "a head that is gone": ("delete from run_heads where stream_id = '{one}'", "head"),
    "a seal's root": ("update seals set root = sha256('x') where number = 1", "seal"),
    "a seal's moment": ("update seals set sealed_at = sealed_at + interval '1 s' where number = 2", "seal"),
    "a seal that is gone": ("delete from seals where number = 1", "seal"),
    "a leaf": ("update seal_leaves set version = version + 1 where number = 3", "seal"),
    "a leaf that is gone": ("delete from seal_leaves where number = 3", "seal"),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_shows(record: Audited, what: str) -> None:
    sql, part = CHANGES[what]
    two = f"stream_id in (select stream_id from decision_heads where run_id = '{record.runs['two']}')"
    await record.forge(sql.format(one=record.runs["one"], two=two), changed=1)
    found = await findings(record)
    assert part in {finding.part for finding in found}
    assert {finding.grade for finding in found} == {"damaged" if part == "head" else "tampered"}


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("update blobs set content = content || ' ' where digest = '{digest}'", "another one than was recorded"),
        ("delete from blobs where digest = '{digest}'", "missing"),
    ],
)
async def test_content_that_was_changed_or_taken_away_shows(record: Audited, sql: str, said: str) -> None:
    digest = await record.pool.fetchval(
        "select payload -> 'output' ->> 'digest' from workflow_history where type = 'attempt.succeeded' limit 1"
    )
    await record.forge(sql.format(digest=f"\\x{digest}"), changed=1)
    found = [finding for finding in await findings(record) if finding.part == "content"]
    assert {finding.grade for finding in found} == {"tampered"}
    assert {finding.category for finding in found} >= {"attempt", "run"}
    assert all(finding.detail.endswith(f"names content {digest}, which is {said}") for finding in found)


async def test_the_role_of_the_services_may_check(record: Audited, postgres_server: PostgresServer) -> None:
    pool = await open_pool(postgres_server.dsn(record.database.name, "minutebook_app"), application_name="auditor")
    try:
        assert (await check_record(pool, RING)).ok
    finally:
        await pool.close()


CUT = (
    "delete from workflow_history e using run_heads h where h.stream_id = '{run}' and e.stream_id = h.stream_id"
    " and e.version = h.version",
    "update run_heads h set version = e.version, digest = e.digest from workflow_history e"
    " where h.stream_id = '{run}' and e.stream_id = h.stream_id and e.version = h.version - 1",
)


async def test_a_tail_that_was_cut_with_its_head_row_shows(record: Audited) -> None:
    run = record.runs["one"]
    await record.forge(*(sql.format(run=run) for sql in CUT))
    found = [finding for finding in await findings(record) if finding.part == "seal"]
    assert [(finding.grade, finding.category, finding.stream_id) for finding in found] == [("tampered", "run", run)]
    assert "its tail was cut" in found[0].detail


async def test_a_stream_that_vanished_without_a_trace_shows(record: Audited) -> None:
    run = record.runs["open"]
    await record.forge(
        f"delete from workflow_history where stream_id = '{run}'", f"delete from run_heads where stream_id = '{run}'"
    )
    (found,) = (finding for finding in await findings(record) if finding.stream_id == run)
    assert (found.part, found.grade) == ("seal", "tampered")
    assert "the stream is gone" in found.detail


async def test_a_history_that_was_written_anew_as_a_whole_shows(record: Audited) -> None:
    """Every digest is right again: only what was sealed tells."""
    run = record.runs["one"]
    await record.forge(*(sql.format(run=run) for sql in CUT), *(sql.format(run=run) for sql in CUT))
    async with record.pool.acquire() as connection:
        ends = await connection.fetchval("select version from run_heads where stream_id = $1", run)
    await record.forge(
        "update seal_leaves l set version = h.version, digest = h.digest from run_heads h"
        f" where l.stream_id = h.stream_id and h.stream_id = '{run}'"
    )
    found = await findings(record)
    assert {finding.part for finding in found} <= {"seal", "head"}
    assert any("made over other leaves" in finding.detail for finding in found), ends


async def test_facts_that_were_put_behind_the_seals_show(record: Audited) -> None:
    run = record.runs["one"]
    await record.forge(
        "insert into workflow_history(era, xid, stream_id, version, category, type, event_version, payload, metadata,"
        " tenant_group, tenant, recorded_at, digest)"
        " select e.era, e.xid, gen_random_uuid(), 1, 'notice', e.type, 1, e.payload, e.metadata, e.tenant_group,"
        f" e.tenant, e.recorded_at, e.digest from workflow_history e where e.stream_id = '{run}' and e.version = 1"
    )
    details = [finding.detail for finding in await findings(record) if finding.part == "seal"]
    assert details == ["version 1 stands where everything was sealed, and was not there: nothing of it was sealed"]


async def test_seals_that_were_cut_with_all_that_they_covered_show_to_a_witness_alone(record: Audited) -> None:
    held = await exported(record)
    first = (await seals_of(record.pool))[0]
    await record.forge(
        f"delete from workflow_history where (era, xid) >= ({first.era}, '{first.upto}')",
        "delete from seals where number > 1",
        f"delete from seal_leaves where number >= {first.size}",
    )
    assert not [finding for finding in await findings(record) if finding.part == "seal"]
    (found,) = (finding for finding in await findings(record, held=held) if finding.part == "seal")
    assert "the witness holds seal 2" in found.detail
    assert "the record ends before it" in found.detail
    await record.pool.execute("insert into eras(era, reason) values (2, 'restored')")
    (found,) = (finding for finding in await findings(record, held=held) if finding.part == "seal")
    assert "was it restored to an older point?" in found.detail


async def test_seals_of_another_key_are_unproven_and_forged_ones_of_a_known_key_tampered(record: Audited) -> None:
    unknown = (await report(record, ring=Keyring())).findings
    assert [(finding.grade, finding.part) for finding in unknown] == [("unproven", "seal")]
    assert key_id(key().public) in unknown[0].detail
    await record.forge("update seals set signature = sha512('x') where number = 2")
    (found,) = await findings(record)
    assert found.detail == "the signature of seal 2 is not that of its content"


async def test_a_witness_that_holds_another_seal_is_heard(record: Audited) -> None:
    held = await exported(record)
    other = replace(held, seals=(replace(held.seals[0], root=b"\0" * 32), held.seals[1]))
    details = [finding.detail for finding in await findings(record, held=other)]
    assert details == [
        "seal 1 is another one than the witness holds",
        "the signature of seal 1 in the witness's file is not that of its content",
    ]


async def test_a_snapshot_that_lies_shows_as_damage(record: Audited) -> None:
    """None of these streams is long enough for one of its own, so one is planted."""
    snapshots = Snapshots(run.CATEGORY)
    async with record.pool.acquire() as connection:
        await connection.execute(
            "insert into snapshots(stream_id, schema, version, tenant_group, digest, content)"
            " select stream_id, $2, version, tenant_group, digest, $3 from run_heads where stream_id = $1",
            record.runs["one"],
            snapshots.schema,
            snapshots.write(Kept(run.CATEGORY.initial)),
        )
    (found,) = await findings(record)
    assert (found.grade, found.part) == ("damaged", "snapshot")


async def misbehave(record: Audited, stream_id: UUID, *events: Event) -> list[str]:
    """Let an effects service that has gone wrong append facts, and return what the ledger says of the effect."""
    place = await record.pool.fetchrow("select tenant_group, tenant from run_heads limit 1")
    store = PostgresStore(record.pool)
    services = Record(record.database, record.pool, store, group=place["tenant_group"], tenant=place["tenant"])
    await services.plant(effect.CATEGORY, stream_id, *events)
    found = [finding for finding in await findings(record) if finding.part != "content"]  # that of `BLOB` is nowhere
    assert {(each.grade, each.part, each.stream_id) for each in found} == {("violated", "ledger", stream_id)}
    return [finding.detail for finding in found]


async def the_effect(record: Audited) -> UUID:
    found: UUID = await record.pool.fetchval("select stream_id from effect_heads where run_id = $1", record.runs["one"])
    return found


async def test_a_write_that_is_made_twice_shows(record: Audited) -> None:
    claim = mint()
    pending = EffectPending(at=AT, claim=claim, arm=0, over_at=AT)
    done = EffectSucceeded(at=AT, claim=claim, reference=None, response=BLOB)
    details = await misbehave(record, await the_effect(record), pending, done)
    assert "it succeeded 2 times" in details
    assert any("sent after it had succeeded" in detail for detail in details)


async def test_a_success_that_nobody_announced_shows(record: Audited) -> None:
    done = EffectSucceeded(at=AT, claim=mint(), reference=None, response=BLOB)
    details = await misbehave(record, await the_effect(record), done)
    assert any("under a claim that was never announced" in detail for detail in details)


@pytest.mark.parametrize(
    ("name", "said"), [("open", "before its run declared it"), ("nowhere", "is not in the history")]
)
async def test_a_write_without_an_approval_shows(record: Audited, name: str, said: str) -> None:
    """A run that still waits for its review has declared nothing; one that is not there cannot have."""
    run_id = record.runs.get(name, mint())
    owner = UserRef(id=mint(), email="ada@example.com")
    declared = EffectDeclared(
        at=AT, run_id=run_id, step="open_pr", key="k", system="github", tool="t", arguments=BLOB, owner=owner
    )
    pending = EffectPending(at=AT, claim=mint(), arm=0, over_at=AT)
    (detail,) = await misbehave(record, ids.effect(run_id, "k"), declared, pending)
    assert said in detail


async def test_an_effect_under_a_key_that_is_not_its_own_shows(record: Audited) -> None:
    declared = EffectDeclared(
        at=AT,
        run_id=record.runs["open"],
        step="open_pr",
        key="k",
        system="github",
        tool="t",
        arguments=BLOB,
        owner=UserRef(id=mint(), email="ada@example.com"),
    )
    (detail,) = await misbehave(record, mint(), declared)
    assert "another effect may have the same key" in detail

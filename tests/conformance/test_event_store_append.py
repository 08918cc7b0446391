"""The append, alike in every adapter: gates, births, guards, claims, blobs, and one bad item."""

import hashlib
from datetime import timedelta
from uuid import UUID

import pytest

from contracts.errors import Broken
from contracts.events.inbound import InboundReceived
from libs.domain.core import Guard
from libs.eventstore.mapper import PAYLOAD_BYTES_MAX
from libs.eventstore.port import Append, Loaded
from libs.ids import mint
from tests.conformance.test_store_samples import (
    AT,
    BLOB,
    GROUP,
    LEASE,
    append,
    birth,
    cancelled,
    created,
    declared,
    queued,
    stage,
    started,
    succeeded,
)
from tests.support.postgres import World

RUNNING = frozenset({"running"})


async def loaded(world: World, category: str, stream_id: UUID) -> Loaded:
    return (await world.store.load(category, {stream_id: 0})).streams[stream_id]


async def a_run(world: World, *attempts: UUID) -> UUID:
    run = mint()
    births = tuple(birth("attempt", a, queued(run, number=n)) for n, a in enumerate(attempts, 1))
    await world.store.append("run", [append("run", run, created(), started(), births=births)])
    return run


async def test_what_was_appended_is_loaded(world: World) -> None:
    run = mint()
    result = await world.store.append("run", [append("run", run, created(), started(), wake_at=AT)])

    (fate,) = result.appended
    assert (fate.fate, fate.version, fate.skipped) == ("won", 2, ())
    assert [(w.category, w.version, w.type) for w in result.written] == [
        ("run", 1, "run.created"),
        ("run", 2, "run.started"),
    ]
    assert result.outbox is not None
    assert result.outbox.era == result.era == 1

    stream = await loaded(world, "run", run)
    assert [r.event for r in stream.events] == [created(), started()]
    assert [r.version for r in stream.events] == [1, 2]
    assert (stream.version, stream.digest, stream.wake_at) == (2, fate.digest, AT)
    assert stream.digest == stream.events[-1].digest
    assert stream.tenant_group == GROUP


async def test_load_tops_up_and_tells_absent_streams(world: World) -> None:
    run, absent = await a_run(world), mint()
    load = await world.store.load("run", {run: 1, absent: 0})
    assert [r.version for r in load.streams[run].events] == [2]
    assert (load.streams[absent].version, load.streams[absent].digest, load.streams[absent].events) == (0, b"", ())

    again = await world.store.load("run", {run: 2})
    assert (again.streams[run].version, again.streams[run].events) == (2, ())
    assert abs(again.now - await world.store.now()) < timedelta(seconds=10)
    assert (await world.store.load("run", {})).streams == {}


async def test_a_stale_version_loses_and_its_neighbour_wins(world: World) -> None:
    stale, fresh = await a_run(world), await a_run(world)
    old, new = await loaded(world, "run", stale), await loaded(world, "run", fresh)
    await world.store.append("run", [append("run", old, stage("first"))])

    result = await world.store.append("run", [append("run", old, stage("late")), append("run", new, stage("ours"))])
    assert [(f.stream_id, f.fate, f.version) for f in result.appended] == [(stale, "lost", 3), (fresh, "won", 3)]
    assert [w.stream_id for w in result.written] == [fresh]
    assert [r.event for r in (await loaded(world, "run", stale)).events][2:] == [stage("first")]


async def test_a_new_stream_expects_zero(world: World) -> None:
    run = mint()
    ahead = Loaded(run, 4, b"", None, GROUP, None, ())
    result = await world.store.append(
        "run", [append("run", ahead, stage("fifth"), columns=append("run", run, created()).columns)]
    )
    assert [(f.fate, f.version) for f in result.appended] == [("lost", 0)]
    assert result.written == ()
    assert result.outbox is None
    assert (await loaded(world, "run", run)).version == 0

    await world.store.append("run", [append("run", run, created())])
    (fate,) = (await world.store.append("run", [append("run", run, created())])).appended
    assert (fate.fate, fate.version) == ("lost", 1)


async def test_births_are_written_with_their_parent_alone(world: World) -> None:
    run, attempt, effect = mint(), mint(), mint()
    births = (birth("attempt", attempt, queued(run), wake_at=AT), birth("effect", effect, declared(run)))
    result = await world.store.append("run", [append("run", run, created(), started(), births=births)])
    assert [(w.category, w.version) for w in result.written] == [("run", 1), ("run", 2), ("attempt", 1), ("effect", 1)]
    born = await loaded(world, "attempt", attempt)
    assert [r.event for r in born.events] == [queued(run)]
    assert (born.version, born.digest, born.wake_at) == (1, born.events[0].digest, AT)

    orphan = mint()
    loser = append("run", run, created(), births=(birth("attempt", orphan, queued(run), work_subject="work.echo.x"),))
    assert (await world.store.append("run", [loser])).written == ()
    assert (await loaded(world, "attempt", orphan)).version == 0
    assert await world.store.waiting() == {}


async def test_a_run_is_born_of_an_event_and_of_no_other_run(world: World) -> None:
    run, event = mint(), mint()
    received = InboundReceived(
        at=AT, source="jira", external_id="1", event="ready", keys={}, payload=BLOB, body_sha256="1" * 64
    )
    result = await world.store.append(
        "inbound", [append("inbound", event, received, births=(birth("run", run, created()),))]
    )
    assert [(w.category, w.stream_id) for w in result.written] == [("inbound", event), ("run", run)]
    assert (await loaded(world, "run", run)).version == 1


async def test_an_effect_may_bear_another_one_and_bears_it_once(world: World) -> None:
    run, effect, link = mint(), mint(), mint()
    await world.store.append("effect", [append("effect", effect, declared(run))])
    births = (birth("effect", link, declared(run)),)
    result = await world.store.append(
        "effect", [append("effect", await loaded(world, "effect", effect), declared(run), births=births)]
    )
    assert [(w.stream_id, w.version) for w in result.written] == [(effect, 2), (link, 1)]
    again = append("effect", await loaded(world, "effect", effect), declared(run), births=births)
    result = await world.store.append("effect", [again])
    assert [fate.skipped for fate in result.appended] == [(link,)]
    assert (await loaded(world, "effect", link)).version == 1


async def test_a_birth_that_exists_is_skipped_and_said(world: World) -> None:
    attempt, other = mint(), mint()
    run = await a_run(world, attempt)
    before = await loaded(world, "run", run)
    births = (birth("attempt", attempt, queued(run, number=7)), birth("attempt", other, queued(run, number=2)))
    result = await world.store.append("run", [append("run", before, stage("next"), births=births)])
    assert [f.skipped for f in result.appended] == [(attempt,)]
    assert [(w.category, w.stream_id) for w in result.written] == [("run", run), ("attempt", other)]
    assert [r.event for r in (await loaded(world, "attempt", attempt)).events] == [queued(run, number=1)]


async def test_two_parents_of_one_birth_in_a_batch(world: World) -> None:
    loser, first, second, attempt = await a_run(world), mint(), mint(), mint()

    def bearing(run: UUID) -> Append:
        return append("run", run, created(), births=(birth("attempt", attempt, queued(run)),))

    result = await world.store.append("run", [bearing(loser), bearing(first), bearing(second)])
    assert [(f.fate, f.skipped) for f in result.appended] == [("lost", ()), ("won", ()), ("won", (attempt,))]
    assert [w.category for w in result.written] == ["run", "attempt", "run"]
    assert (await loaded(world, "attempt", attempt)).events[0].metadata.correlation == first


async def test_a_guard_that_does_not_hold(world: World) -> None:
    open_, closed, absent = (mint() for _ in range(3))
    runs = {open_: await a_run(world, open_), closed: await a_run(world, closed), absent: await a_run(world, absent)}
    await world.store.append("run", [append("run", await loaded(world, "run", runs[closed]), cancelled())])
    heads = await world.store.load("attempt", dict.fromkeys(runs, 0))
    guards = {a: (Guard("run", run if a != absent else mint(), RUNNING),) for a, run in runs.items()}

    result = await world.store.append(
        "attempt", [append("attempt", heads.streams[a], succeeded(mint()), guards=guards[a]) for a in runs]
    )
    assert [f.fate for f in result.appended] == ["won", "guarded", "guarded"]
    assert [f.version for f in result.appended] == [2, 1, 1]
    assert [w.stream_id for w in result.written] == [open_]


async def test_every_guard_of_an_append_must_hold(world: World) -> None:
    attempt, effect = mint(), mint()
    run = await a_run(world, attempt)
    both = (Guard("run", run, RUNNING | {"created"}), Guard("attempt", attempt, frozenset({"running"})))
    (fate,) = (await world.store.append("effect", [append("effect", effect, declared(run), guards=both)])).appended
    assert fate.fate == "guarded"
    held = (both[0], Guard("attempt", attempt, frozenset({"queued", "running"})))
    (fate,) = (await world.store.append("effect", [append("effect", effect, declared(run), guards=held)])).appended
    assert fate.fate == "won"


async def test_what_comes_after_its_deadline_is_not_written(world: World) -> None:
    early, late, guarded, free = (mint() for _ in range(4))
    now = await world.store.now()
    passed, to_come = now - timedelta(seconds=1), now + timedelta(hours=1)
    nobody = (Guard("effect", mint(), frozenset({"declared"})),)
    result = await world.store.append(
        "run",
        [
            append("run", early, created(), deadline=to_come),
            append("run", late, created(), deadline=passed),
            append("run", guarded, created(), deadline=passed, guards=nobody),
            append("run", free, created()),
        ],
    )
    assert [fate.fate for fate in result.appended] == ["won", "late", "late", "won"]
    assert {written.stream_id for written in result.written} == {early, free}


async def test_a_stale_stream_is_lost_before_it_is_guarded(world: World) -> None:
    attempt = mint()
    run = await a_run(world, attempt)
    before = await loaded(world, "attempt", attempt)
    await world.store.append("attempt", [append("attempt", before, succeeded(mint()))])
    guard = (Guard("run", run, frozenset({"completed"})),)
    (fate,) = (
        await world.store.append("attempt", [append("attempt", before, succeeded(mint()), guards=guard)])
    ).appended
    assert (fate.fate, fate.version) == ("lost", 2)


async def test_the_claim_gate(world: World) -> None:
    effect, claim = mint(), mint()
    run = await a_run(world)
    await world.store.append("effect", [append("effect", effect, declared(run))])

    async def report(**changes: UUID | bool) -> str:
        before = await loaded(world, "effect", effect)
        result = await world.store.append("effect", [append("effect", before, declared(run), **changes)])
        return result.appended[0].fate

    assert await report(claim=mint()) == "lost"  # nobody holds it
    assert await report(set_claim=claim) == "won"
    assert await report(claim=mint()) == "lost"
    assert await report(claim=claim) == "won"  # and keeps it
    assert await report(claim=claim, release=True) == "won"
    assert await report(claim=claim) == "lost"
    assert await report() == "won"
    assert (await world.store.append("effect", [append("effect", mint(), declared(run), claim=claim)])).written == ()


async def test_a_refused_claim_shows_the_version_that_was_expected(world: World) -> None:
    effect = mint()
    await world.store.append("effect", [append("effect", effect, declared(mint()), set_claim=mint())])
    before = await loaded(world, "effect", effect)
    (fate,) = (await world.store.append("effect", [append("effect", before, declared(mint()), claim=mint())])).appended
    assert (fate.fate, fate.version, fate.digest) == ("lost", before.version, before.digest)


async def test_a_lease_that_stands_keeps_its_wake(world: World) -> None:
    attempt = mint()
    run = await a_run(world)
    work = birth("attempt", attempt, queued(run), work_subject="work.echo.default")
    await world.store.append("run", [append("run", await loaded(world, "run", run), stage("x"), births=(work,))])
    (claimed,) = await world.store.claim(None, limit=1, lease=LEASE)
    before = await loaded(world, "attempt", attempt)
    await world.store.append("attempt", [append("attempt", before, queued(run), claim=claimed.claim)])
    held = await loaded(world, "attempt", attempt)
    assert held.wake_at == claimed.lease_until
    await world.store.append(
        "attempt", [append("attempt", held, succeeded(claimed.claim), claim=claimed.claim, release=True)]
    )
    assert (await loaded(world, "attempt", attempt)).wake_at is None


async def test_content_is_kept_once_per_tenant_group(world: World) -> None:
    content, other = b'{"a":1}', mint()
    digest = hashlib.sha256(content).hexdigest()
    run = mint()
    await world.store.append("run", [append("run", run, created(), blobs={digest: content})])
    await world.store.append("run", [append("run", mint(), created(), blobs={digest: content})])
    assert await world.store.blobs(GROUP, [digest, "f" * 64]) == {digest: content}
    assert await world.store.blobs(other, [digest]) == {}
    await world.store.put_blobs(other, {digest: content})
    assert await world.store.blobs(other, [digest]) == {digest: content}

    lost = b"[]"
    key = hashlib.sha256(lost).hexdigest()
    await world.store.append("run", [append("run", run, created(), blobs={key: lost})])
    assert await world.store.blobs(GROUP, [key]) == {}


async def test_a_long_payload_comes_back_whole(world: World) -> None:
    run = mint()
    long = created(context={"text": "ä\x00" * PAYLOAD_BYTES_MAX})
    await world.store.append("run", [append("run", run, long, started())])
    stream = await loaded(world, "run", run)
    assert [r.event for r in stream.events] == [long, started()]
    events = await world.store.events("run", [run], tenant_group=GROUP)
    assert [r.event for r in events[run]] == [long, started()]


async def test_events_of_one_tenant_group(world: World) -> None:
    ours, theirs, other = mint(), mint(), mint()
    await world.store.append("run", [append("run", ours, created()), append("run", theirs, created(), group=other)])
    found = await world.store.events("run", [ours, theirs, mint()], tenant_group=GROUP)
    assert list(found) == [ours]
    assert [r.version for r in found[ours]] == [1]


@pytest.mark.parametrize("value", [1 << 63, "many"])
async def test_a_bad_value_breaks_the_batch_and_writes_nothing(world: World, value: object) -> None:
    innocents = [append("run", mint(), created()) for _ in range(200)]
    bad = append("run", mint(), created())
    spoilt = append("run", mint(), created(), columns={**bad.columns, "cost_microdollars": value})
    with pytest.raises(Broken):
        await world.store.append("run", [*innocents, spoilt])
    absent = await world.store.load("run", {a.stream_id: 0 for a in innocents})
    assert {stream.version for stream in absent.streams.values()} == {0}
    assert await world.store.unpublished(older_than=timedelta(0), limit=10) == []

    result = await world.store.append("run", innocents)
    assert {fate.fate for fate in result.appended} == {"won"}


async def test_a_text_that_the_database_cannot_keep(world: World) -> None:
    run = append("run", mint(), created())
    with pytest.raises(Broken):
        await world.store.append("run", [append("run", mint(), created(), columns={**run.columns, "reason": "a\x00b"})])


async def test_mistakes_of_the_caller(world: World) -> None:
    run = mint()
    good = append("run", run, created())
    for bad in (
        [good, good],
        [append("run", run)],
        [append("run", run, created(), claim=mint())],
        [append("run", run, created(), columns={})],
        [append("run", run, created(), births=(birth("run", mint(), created()),))],
        [append("run", run, created(), guards=(Guard("run", run, RUNNING),))],
        [append("run", run, created(), blobs={"short": b""})],
    ):
        with pytest.raises(Broken):
            await world.store.append("run", bad)
    with pytest.raises(Broken):
        await world.store.load("unheard", {run: 0})
    assert (await loaded(world, "run", run)).version == 0

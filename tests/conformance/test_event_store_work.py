"""Claims, wakes, the outbox, deliveries and leases, alike in every adapter."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from contracts.base import BlobRef
from contracts.events.attempt import AttemptLeaseLost
from contracts.events.inbound import InboundReceived
from contracts.events.run import RunResumed, RunSuspended
from libs.canonical import blob
from libs.eventstore.port import Claims, Clockwork, Deliveries, Delivery, EventStore, Loaded
from libs.ids import mint
from tests.conformance.test_store_samples import (
    AT,
    BLOB,
    GROUP,
    LEASE,
    TENANT,
    append,
    birth,
    cancelled,
    created,
    queued,
    stage,
    started,
    succeeded,
)
from tests.support.postgres import World

SUBJECT = "work.echo.default"
SECOND = timedelta(seconds=1)


def test_each_adapter_is_every_port(world: World) -> None:
    """The type checker proves it; this keeps the proof in use."""
    ports: tuple[EventStore, Clockwork, Claims, Deliveries] = (world.store, world.store, world.store, world.store)
    assert len(set(map(id, ports))) == 1


async def loaded(world: World, category: str, stream_id: UUID) -> Loaded:
    return (await world.store.load(category, {stream_id: 0})).streams[stream_id]


async def queue(world: World, *attempts: UUID, subject: str = SUBJECT) -> UUID:
    """A running run with these attempts in `ready`."""
    run = mint()
    births = tuple(birth("attempt", a, queued(run, number=n), work_subject=subject) for n, a in enumerate(attempts, 1))
    await world.store.append("run", [append("run", run, created(), started(), births=births)])
    return run


async def test_work_is_claimed_once_oldest_first(world: World) -> None:
    first, second, third = mint(), mint(), mint()
    await queue(world, first)
    await world.advance(SECOND)
    await queue(world, second, third)
    assert await world.store.waiting() == {SUBJECT: 3}

    (claimed,) = await world.store.claim([SUBJECT], limit=1, lease=LEASE)
    assert claimed.attempt_id == first
    assert (await loaded(world, "attempt", first)).wake_at == claimed.lease_until
    rest = await world.store.claim(None, limit=10, lease=LEASE)
    assert {c.attempt_id for c in rest} == {second, third}
    assert len({c.claim for c in rest} | {claimed.claim}) == 3
    assert await world.store.claim(None, limit=10, lease=LEASE) == []
    assert await world.store.waiting() == {}


async def test_a_claim_brings_the_attempt_and_its_request(world: World) -> None:
    """As `load` and `blobs` would answer at that moment; a request that is stored nowhere is left out."""
    lost, fresh, run = mint(), mint(), mint()
    ref, content = blob({"prompt": "once"})
    births = (
        birth("attempt", lost, queued(run).model_copy(update={"request": ref}), work_subject=SUBJECT),
        birth("attempt", fresh, queued(run, number=2), work_subject="work.other.default"),
    )
    created_ = append("run", run, created(), started(), births=births, blobs={ref.digest: content})
    await world.store.append("run", [created_])
    (first,) = await world.store.claim([SUBJECT], limit=1, lease=LEASE)
    before, fact = await loaded(world, "attempt", lost), AttemptLeaseLost(at=AT, claim=first.claim, count=1)
    again = append("attempt", before, fact, state="queued", claim=first.claim, release=True, ready={lost: SUBJECT})
    await world.store.append("attempt", [again])

    claimed = {c.attempt_id: c for c in await world.store.claim(None, limit=10, lease=LEASE)}

    assert {attempt_id: each.stream for attempt_id, each in claimed.items()} == {
        attempt_id: await loaded(world, "attempt", attempt_id) for attempt_id in (lost, fresh)
    }
    stream = claimed[lost].stream
    assert stream is not None
    assert [recorded.version for recorded in stream.events] == [1, 2]
    assert (claimed[lost].request, claimed[fresh].request) == (content, None)


async def test_other_streams_are_read_beside(world: World) -> None:
    attempt, decision = mint(), mint()
    run = await queue(world, attempt)
    known = await loaded(world, "run", run)

    load = await world.store.load("run", {run: 1}, beside=[("attempt", attempt), ("decision", decision)])

    assert load.streams == {run: replace(known, events=known.events[1:])}
    assert load.beside == {attempt: (await loaded(world, "attempt", attempt)).events}


async def test_an_attempt_that_is_read_beside_brings_its_output(world: World) -> None:
    """As `blobs` would answer; one that is stored nowhere is left out, and who reads attempts themselves has none."""
    kept, lost = mint(), mint()
    run = await queue(world, kept, lost)
    ref, content = blob({"words": "mine"})
    for claimed in await world.store.claim(None, limit=2, lease=LEASE):
        id_, fact = claimed.attempt_id, succeeded(claimed.claim)
        given = {ref.digest: content} if id_ == kept else {}
        end = fact.model_copy(update={"output": ref}) if id_ == kept else fact
        before = await loaded(world, "attempt", id_)
        await world.store.append("attempt", [append("attempt", before, end, state="succeeded", blobs=given)])

    load = await world.store.load("run", {run: 0}, beside=[("attempt", kept), ("attempt", lost)])

    assert load.outputs == {(GROUP, ref.digest): content}
    assert (await world.store.load("attempt", {kept: 0})).outputs == {}


async def test_a_claim_takes_its_subjects_only(world: World) -> None:
    ours, theirs = mint(), mint()
    await queue(world, ours)
    await queue(world, theirs, subject="work.claude_code.default")
    claimed = await world.store.claim([SUBJECT, "work.sdk.default"], limit=10, lease=LEASE)
    assert [c.attempt_id for c in claimed] == [ours]
    assert await world.store.waiting() == {"work.claude_code.default": 1}
    assert await world.store.claim([], limit=10, lease=LEASE) == []


async def test_work_of_a_run_that_is_not_active_is_dropped(world: World) -> None:
    suspended, ended, alive = mint(), mint(), mint()
    runs = [await queue(world, a) for a in (suspended, ended, alive)]
    paused = append("run", await loaded(world, "run", runs[0]), RunSuspended(at=AT, reason="wait"))
    over = append("run", await loaded(world, "run", runs[1]), cancelled())
    await world.store.append("run", [paused, over])

    claimed = await world.store.claim(None, limit=10, lease=LEASE)
    assert [c.attempt_id for c in claimed] == [alive]
    assert await world.store.waiting() == {}

    resumed = append("run", await loaded(world, "run", runs[0]), RunResumed(at=AT), ready={suspended: SUBJECT})
    await world.store.append("run", [resumed])
    assert [c.attempt_id for c in await world.store.claim(None, limit=10, lease=LEASE)] == [suspended]


async def test_work_that_is_held_or_done_is_not_claimed_again(world: World) -> None:
    held, done = mint(), mint()
    run = await queue(world, held, done)
    claims = {c.attempt_id: c.claim for c in await world.store.claim(None, limit=2, lease=LEASE)}
    finished = append(
        "attempt", await loaded(world, "attempt", done), succeeded(claims[done]), claim=claims[done], release=True
    )
    await world.store.append("attempt", [finished])
    again = append("run", await loaded(world, "run", run), stage("again"), ready={held: SUBJECT, done: SUBJECT})
    await world.store.append("run", [again])
    assert await world.store.claim(None, limit=10, lease=LEASE) == []
    assert await world.store.waiting() == {}

    again = append("run", await loaded(world, "run", run), stage("once more"), ready={held: SUBJECT})
    await world.store.append("run", [again])
    await world.advance(LEASE + SECOND)
    (taken,) = await world.store.claim(None, limit=10, lease=LEASE)
    assert taken.attempt_id == held
    assert taken.claim != claims[held]
    late = append("attempt", await loaded(world, "attempt", held), succeeded(claims[held]), claim=claims[held])
    assert [f.fate for f in (await world.store.append("attempt", [late])).appended] == ["lost"]


async def test_queueing_twice_is_queueing_once(world: World) -> None:
    attempt = mint()
    run = await queue(world, attempt)
    await world.store.append(
        "run", [append("run", await loaded(world, "run", run), stage("x"), ready={attempt: "work.other.default"})]
    )
    assert await world.store.waiting() == {SUBJECT: 1}


async def test_leases_are_renewed_by_their_holder_only(world: World) -> None:
    ours, theirs = mint(), mint()
    await queue(world, ours, theirs)
    claims = {c.attempt_id: c.claim for c in await world.store.claim(None, limit=2, lease=LEASE)}
    before = await loaded(world, "attempt", ours)
    await world.advance(SECOND)
    assert await world.store.renew([(ours, claims[ours]), (theirs, mint()), (mint(), mint())], lease=LEASE) == {ours}
    after = await loaded(world, "attempt", ours)
    assert before.wake_at is not None
    assert after.wake_at is not None
    assert after.wake_at >= before.wake_at + SECOND
    assert after.version == before.version
    assert await world.store.renew([], lease=LEASE) == frozenset()


async def test_due_wakes_come_oldest_first_page_by_page(world: World) -> None:
    now = await world.store.now()
    runs = [mint() for _ in range(5)]
    wakes = [now + SECOND * n for n in (3, 1, 2, 2)] + [None]
    await world.store.append(
        "run", [append("run", run, created(), wake_at=wake) for run, wake in zip(runs, wakes, strict=True)]
    )
    assert await world.store.due("run", limit=10) == []
    await world.advance(timedelta(minutes=1))
    due = await world.store.due("run", limit=10)
    assert [d.stream_id for d in due] == [runs[1], *sorted(runs[2:4]), runs[0]]
    page = await world.store.due("run", limit=2)
    rest = await world.store.due("run", limit=10, after=(page[-1].wake_at, page[-1].stream_id))
    assert [*page, *rest] == due
    assert await world.store.due("attempt", limit=10) == []


async def test_wakes_move_under_the_gate(world: World) -> None:
    run, stale = mint(), mint()
    await world.store.append("run", [append("run", run, created()), append("run", stale, created(), wake_at=AT)])
    await world.store.move_wakes("run", [(run, 1, AT), (stale, 7, None), (mint(), 1, AT)])
    assert (await loaded(world, "run", run)).wake_at == AT
    assert (await loaded(world, "run", stale)).wake_at == AT
    await world.store.move_wakes("run", [(run, 1, None)])
    assert (await loaded(world, "run", run)).wake_at is None


async def test_a_lease_that_ended_does_not_hold_a_wake_back(world: World) -> None:
    attempt = mint()
    await queue(world, attempt)
    (claimed,) = await world.store.claim(None, limit=1, lease=LEASE)
    await world.store.move_wakes("attempt", [(attempt, 1, None)])
    assert (await loaded(world, "attempt", attempt)).wake_at == claimed.lease_until
    await world.advance(LEASE + SECOND)
    await world.store.move_wakes("attempt", [(attempt, 1, None)])
    assert (await loaded(world, "attempt", attempt)).wake_at is None


async def test_the_outbox_keeps_what_was_not_published(world: World) -> None:
    first = await world.store.append("run", [append("run", mint(), created(), started())])
    attempt = mint()
    run = mint()
    work = birth("attempt", attempt, queued(run), work_subject=SUBJECT)
    second = await world.store.append("run", [append("run", run, created(), births=(work,))])
    assert first.outbox is not None
    assert second.outbox is not None

    assert await world.store.unpublished(older_than=timedelta(minutes=1), limit=10) == []
    await world.advance(timedelta(minutes=2))
    old = await world.store.unpublished(older_than=timedelta(minutes=1), limit=10)
    assert [(token, tuple(written)) for token, written in old] == [
        (first.outbox, first.written),
        (second.outbox, second.written),
    ]
    assert len(await world.store.unpublished(older_than=timedelta(0), limit=1)) == 1

    await world.store.published(first.outbox)
    third = await world.store.append("run", [append("run", mint(), created())])
    assert [t for t, _ in await world.store.unpublished(older_than=timedelta(0), limit=9)] == [
        second.outbox,
        third.outbox,
    ]
    assert third.outbox is not None
    for token in (second.outbox, third.outbox, third.outbox):
        await world.store.published(token)
    await world.store.flush()
    assert await world.store.unpublished(older_than=timedelta(0), limit=10) == []


def delivery(external_id: str = "42") -> tuple[Delivery, dict[str, bytes]]:
    payload, content = blob({"issue": {"key": "ABC-1"}})
    return (
        Delivery(
            id=mint(),
            tenant_group=GROUP,
            tenant=TENANT,
            source="jira",
            adapter="jira",
            external_id=external_id,
            event="issue.updated",
            keys={"issue": "ABC-1", "n": 1.0},
            payload=payload,
            body_sha256="2" * 64,
            traceparent=None,
        ),
        {payload.digest: content},
    )


async def test_a_delivery_is_kept_until_it_is_recorded(world: World) -> None:
    ours, content = delivery()
    assert await world.store.accept(ours, content)
    assert not await world.store.accept(replace(ours, event="other"), {})
    assert (await world.store.body_of(ours.id), await world.store.body_of(mint())) == (ours.body_sha256, None)
    (found,) = await world.store.deliveries([ours.id, mint()])
    assert found.received_at is not None
    assert replace(found, received_at=None) == ours
    assert await world.store.blobs(GROUP, content) == content

    assert await world.store.due_deliveries(older_than=timedelta(minutes=1), limit=10) == []
    await world.advance(timedelta(minutes=2))
    assert await world.store.due_deliveries(older_than=timedelta(minutes=1), limit=10) == [ours.id]

    received = InboundReceived(
        at=AT,
        source=ours.source,
        external_id=ours.external_id,
        event=ours.event,
        keys={},
        payload=BLOB,
        body_sha256=ours.body_sha256,
    )
    await world.store.append("inbound", [append("inbound", ours.id, received)])
    assert await world.store.deliveries([ours.id]) == []
    assert await world.store.due_deliveries(older_than=timedelta(0), limit=10) == []
    assert not await world.store.accept(ours, content), "recorded already: a duplicate for ever"
    assert await world.store.body_of(ours.id) == ours.body_sha256


async def test_a_delivery_without_its_body_says_how_long_it_is(world: World) -> None:
    ours, _ = delivery()
    await world.store.accept(replace(ours, payload=BlobRef(digest="3" * 64, bytes=12)), {})
    (found,) = await world.store.deliveries([ours.id])
    assert found.payload == BlobRef(digest="3" * 64, bytes=12)


@pytest.mark.parametrize("release", [True, False])
async def test_a_named_lease_has_one_holder(world: World, release: bool) -> None:
    ours, theirs = mint(), mint()
    assert await world.store.hold_lease("scheduler", ours, for_=LEASE)
    assert not await world.store.hold_lease("scheduler", theirs, for_=LEASE)
    assert await world.store.hold_lease("other", theirs, for_=LEASE)
    assert await world.store.hold_lease("scheduler", ours, for_=LEASE)
    await world.store.release_lease("scheduler", theirs)
    assert not await world.store.hold_lease("scheduler", theirs, for_=LEASE)
    if release:
        await world.store.release_lease("scheduler", ours)
    else:
        await world.advance(LEASE + SECOND)
    assert await world.store.hold_lease("scheduler", theirs, for_=LEASE)
    assert not await world.store.hold_lease("scheduler", ours, for_=LEASE)


async def test_what_is_open_is_woken_page_by_page_and_nothing_else(world: World) -> None:
    runs = sorted([mint() for _ in range(5)])
    await world.store.append("run", [append("run", run, created(), started()) for run in runs])
    over = append("run", await loaded(world, "run", runs[3]), cancelled())
    await world.store.append("run", [over])
    now = await world.store.now()
    await world.store.move_wakes("run", [(runs[0], 2, None), (runs[1], 2, now + SECOND), (runs[2], 2, now - SECOND)])
    await world.advance(timedelta(milliseconds=1))

    pages: list[int] = []
    after: UUID | None = None
    while not pages or after is not None:
        page = await world.store.wake_open("run", {"running"}, limit=2, after=after)
        pages.append(page.streams)
        after = page.next
    assert pages == [2, 0, 1]
    due = await world.store.due("run", limit=10)
    assert {found.stream_id for found in due} == {runs[0], runs[1], runs[2], runs[4]}
    assert due[0].stream_id == runs[2], "what was due keeps its place"
    assert (await world.store.wake_open("run", {"running"}, limit=10)).streams == 0


async def test_the_incarnations_of_the_bus_are_remembered_and_forgotten(world: World) -> None:
    assert await world.store.incarnations() == {}
    await world.store.record_incarnations({"HISTORY": "1", "WAKE": "1"})
    await world.store.record_incarnations({"HISTORY": "2", "WAKE": None, "WORK": None})
    assert await world.store.incarnations() == {"HISTORY": "2"}

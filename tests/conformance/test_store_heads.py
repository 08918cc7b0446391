"""Reads of head rows, on both adapters."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from contracts import ids
from contracts.base import Actor, BlobRef, Event, JsonObject
from contracts.events.attempt import AttemptQueued
from contracts.events.definition import DefinitionSynced, EventTrigger
from contracts.events.identity import KeyMinted, UserDeactivated, UserRegistered
from contracts.events.inbound import InboundReceived
from contracts.events.run import RunCreated, RunStarted, RunSuspended, Trigger, UserRef
from contracts.events.wait import WaitClosed, WaitMatched, WaitOpened
from libs.domain.categories import CATEGORIES
from libs.domain.core import Birth, Decided
from libs.domain.identity import held_names
from libs.eventstore.port import Arrived, Earlier, Page, Store
from libs.language.matching import probes
from libs.owner import Item, Owner, Publisher
from tests.support.postgres import World
from tests.support.record import ListeningBus

GROUP, TENANT = uuid4(), uuid4()
AT = datetime(2026, 3, 2, tzinfo=UTC)
BLOB = BlobRef(digest="1" * 64, bytes=2)


async def write(
    store: Store, category: str, stream_id: UUID, *events: Event, births: Sequence[Birth] = (), group: UUID = GROUP
) -> None:
    decided = Decided(events=events, births=tuple(births))
    owner: Owner[Any, str] = Owner(
        CATEGORIES[category],
        lambda _command, _state, _now: decided,
        store=store,
        publisher=Publisher(ListeningBus(), store),
        categories=CATEGORIES,
    )
    item = Item(stream_id, "write", Actor(kind="system", name="t"), uuid4(), tenant_group=group, tenant=TENANT)
    (result,) = await owner.handle([item])
    assert getattr(result, "changed", False), result


async def a_run(store: Store, attempts: int, *events: Event, parent: UUID | None = None) -> tuple[UUID, list[UUID]]:
    run_id = uuid4()
    attempt_ids = [ids.attempt(run_id, "a", 1, n) for n in range(1, attempts + 1)]
    births = [
        Birth(
            "attempt",
            attempt_id,
            AttemptQueued(
                at=AT, run_id=run_id, step="a", round=1, number=n, executor="echo", queue="default", request=BLOB
            ),
            work_subject="work.echo.default",
        )
        for n, attempt_id in enumerate(attempt_ids, 1)
    ]
    created = RunCreated(
        at=AT,
        definition_id="trial",
        hash="0" * 64,
        bundle=BLOB,
        context={},
        initiated_by=UserRef(id=uuid4(), email="dana@example.com"),
        trigger=Trigger(kind="manual"),
        parent=parent,
    )
    await write(store, "run", run_id, created, *events, births=births)
    return run_id, attempt_ids


async def test_heads_by_id_and_by_run(world: World) -> None:
    run_id, attempts = await a_run(world.store, 2)
    other, _ = await a_run(world.store, 1)
    heads = await world.store.heads("attempt", [*attempts, uuid4()])
    assert set(heads) == set(attempts)
    assert {(h.version, h.state, h.run_id, h.claim) for h in heads.values()} == {(1, "queued", run_id, None)}
    assert (await world.store.heads("run", [other]))[other].run_id is None
    of_run = await world.store.heads_of_runs("attempt", [run_id], states={"queued", "running"})
    assert [head.stream_id for head in of_run] == sorted(attempts)
    assert not await world.store.heads_of_runs("attempt", [run_id], states={"running"})


async def test_what_came_of_a_run_is_found_through_whatever_state(world: World) -> None:
    root, _ = await a_run(world.store, 0)
    child, _ = await a_run(world.store, 0, parent=root)
    suspended = RunSuspended(at=AT, reason="in doubt")
    grandchild, _ = await a_run(world.store, 0, RunStarted(at=AT), suspended, parent=child)
    await a_run(world.store, 0, RunStarted(at=AT), suspended)

    assert await world.store.forks_of({root}, states={"suspended"}) == [grandchild]
    assert await world.store.forks_of({grandchild}, states={"suspended"}) == []


async def test_a_lease_has_ended_by_the_databases_clock(world: World) -> None:
    _, (attempt_id,) = await a_run(world.store, 1)
    (claimed,) = await world.store.claim(None, limit=1, lease=timedelta(seconds=90))
    head = (await world.store.heads("attempt", [attempt_id]))[attempt_id]
    assert (head.claim, head.lease_until, head.lease_ended) == (claimed.claim, claimed.lease_until, False)
    await world.advance(timedelta(seconds=91))
    assert (await world.store.heads("attempt", [attempt_id]))[attempt_id].lease_ended


async def test_workflows_that_a_source_starts(world: World) -> None:
    trigger = EventTrigger(source="jira", match={"event": "x"}, run_as="w@example.com")
    synced = DefinitionSynced(
        at=AT,
        definition_id="one",
        name="One",
        hash="0" * 64,
        bundle=BLOB,
        enabled=True,
        event_triggers=(trigger,),
        required_context=(),
    )
    wanted, disabled, silent, foreign = (uuid4() for _ in range(4))
    await write(world.store, "definition", wanted, synced)
    await write(world.store, "definition", disabled, synced.model_copy(update={"enabled": False}))
    await write(world.store, "definition", silent, synced.model_copy(update={"event_triggers": ()}))
    await write(world.store, "definition", foreign, synced, group=uuid4())
    assert await world.store.started_by(GROUP, {"jira", "generic"}) == [wanted]
    assert await world.store.started_by(GROUP, {"generic"}) == []
    assert wanted in await world.store.declared(GROUP, "workflow")
    assert await world.store.declared(GROUP, "channel") == await world.store.declared(uuid4(), "workflow") == []


async def test_streams_in_some_states_page_by_page(world: World) -> None:
    (first, attempts), (second, _) = await a_run(world.store, 3), await a_run(world.store, 0)
    seen: list[UUID] = []
    after = None
    while True:
        page = await world.store.in_states("run", {"created"}, limit=1, after=after)
        seen += page.stream_ids
        after = page.next
        if after is None:
            break
    assert seen == sorted([first, second])
    assert await world.store.in_states("attempt", {"running"}, limit=2) == Page((), sorted(attempts)[1])
    assert await world.store.in_states("attempt", {"queued"}, limit=10) == Page(tuple(sorted(attempts)), None)


async def an_event(store: Store, name: str = "ready", *, group: UUID = GROUP, source: str = "jira") -> UUID:
    inbound_id = uuid4()
    received = InboundReceived(
        at=(await store.now()),
        source=source,
        external_id=str(inbound_id),
        event=name,
        keys={},
        payload=BLOB,
        body_sha256="1" * 64,
    )
    await write(store, "inbound", inbound_id, received, group=group)
    return inbound_id


async def a_wait(store: Store, match: JsonObject, *, group: UUID = GROUP, source: str = "jira") -> UUID:
    wait_id = uuid4()
    opened = WaitOpened(at=AT, run_id=uuid4(), step="s", round=1, source=source, match=match, since=AT, consumed=())
    await write(store, "wait", wait_id, opened, group=group)
    return wait_id


async def a_user(store: Store, name: str, *, group: UUID = GROUP, left: bool = False, **has: Any) -> UUID:
    registered = UserRegistered(at=AT, email=f"{name}@example.com", name=name, kind="user", **has)
    ended = (UserDeactivated(at=AT),) if left else ()
    user_id = uuid4()
    await write(store, "identity", user_id, registered, *ended, group=group)
    return user_id


async def test_users_are_found_by_what_they_have(world: World) -> None:
    store = world.store
    lead = await a_user(store, "lead", roles=("lead", "developer"))
    guard = await a_user(store, "guard", groups=("sec",), projects=("core",))
    await a_user(store, "gone", roles=("lead",), left=True)
    await a_user(store, "elsewhere", roles=("lead",), group=uuid4())
    await a_user(store, "other", roles=("sec",), groups=("lead",), projects=("lead",))
    await write(store, "identity", uuid4(), KeyMinted(at=AT, kind="api_key", name="key", user_id=None, roles=("lead",)))
    assert await store.holders(GROUP, held_names(roles=["lead"])) == [lead]
    assert await store.holders(GROUP, held_names(groups=["sec"])) == [guard]
    assert await store.holders(GROUP, held_names(["developer"], [], ["core"])) == sorted([lead, guard])
    assert await store.holders(GROUP, []) == []


async def test_the_waits_of_an_event_are_found_by_what_they_ask_for(world: World) -> None:
    store = world.store
    mine, any_ = await a_wait(store, {"event": "ready", "key": "A-1"}), await a_wait(store, {})
    by_name = await a_wait(store, {"event": "ready"})
    await a_wait(store, {"event": "ready", "key": "A-2"})
    await a_wait(store, {"key": "A-1"}, source="tracker")
    await a_wait(store, {"key": "A-1"}, group=uuid4())
    closed = await a_wait(store, {"key": "A-1"})
    await write(store, "wait", closed, WaitClosed(at=AT, reason="over"))
    first, second = uuid4(), uuid4()
    asked = [
        Arrived(first, GROUP, "jira", probes("ready", {"key": "A-1"})),
        Arrived(second, GROUP, "jira", probes("other", {"key": "A-3"})),
    ]
    assert await store.waits_of_events(asked) == [sorted([mine, any_, by_name]), [any_]]
    took = WaitMatched(at=AT, inbound_id=second, external_id="2", event="ready", keys={}, payload=BLOB)
    await write(store, "wait", mine, took)
    assert await store.waits_of_events(asked) == [sorted([any_, by_name]), sorted([any_, mine])]
    assert await store.waits_of_events([]) == []


async def test_events_that_came_before_are_paged_oldest_first(world: World) -> None:
    store = world.store
    began = await store.now()
    events = []
    for name in ("ready", "done", "ready", "ready"):
        events.append(await an_event(store, name))
        await world.advance(timedelta(seconds=1))
    await an_event(store, group=uuid4())
    await an_event(store, source="tracker")
    everything, ready = Earlier(GROUP, "jira", None, began), Earlier(GROUP, "jira", "ready", began)
    pages = await store.earlier_events([everything, ready], limit=3)
    assert [[i for _, i in page] for page in pages] == [events[:3], [events[0], events[2], events[3]]]
    (rest,) = await store.earlier_events([replace(everything, after=pages[0][-1])], limit=3)
    assert [i for _, i in rest] == events[3:]
    later = replace(ready, since=pages[0][1][0])
    assert [i for _, i in (await store.earlier_events([later], limit=1))[0]] == [events[2]]

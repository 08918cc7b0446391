"""What the simulation found, each as the shortest way that leads there. Seeds change with the code; these stay."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from uuid import UUID, uuid4

import pytest

from contracts import ids
from contracts.base import Actor, BlobRef, Event, Metadata
from contracts.commands import CancelRun, SettleEffect
from contracts.envelope import Address, Envelope
from contracts.errors import Rejected, Unavailable
from contracts.events import effect as f
from contracts.events import run as r
from contracts.events.decision import DecisionOpened
from contracts.events.definition import ServerSynced, ToolDeclaration
from contracts.events.identity import UserRegistered
from contracts.events.run import RoleBinding
from contracts.replies import EffectChanged, RunChanged
from contracts.subjects import history
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.bus.port import Message
from libs.canonical import blob
from libs.config import Secrets, Settings
from libs.domain import effect, run
from libs.domain.categories import CATEGORIES
from libs.eventstore.memory import MemoryStore
from libs.eventstore.port import Append, BatchResult, Load, SnapshotKey
from libs.mcp import Outcome
from libs.owner import Done, Item, Owner, Publisher
from libs.process import Tools
from libs.process.asks import ask
from libs.sealing import Sealing
from libs.vault import Vault
from services.decision.app import build as build_decision
from services.effects.app import build
from services.effects.connectors import Connectors
from services.effects.gates import Gates
from services.effects.grants import Grants
from services.effects.ledger import Ledger
from services.effects.turns import Turns
from services.scheduler.wakes import wake_message
from tests.simulation.people import GROUP, LEADS, TENANT
from tests.support.effects import OVER_WITHIN
from tests.support.runs import bundle_of

DIGEST = BlobRef(digest="0" * 64, bytes=2)
OWNER = r.UserRef(id=LEADS[0].id, email=LEADS[0].name)


async def _write(store: MemoryStore, category: str, stream_id: UUID, *events: Event) -> None:
    """Append facts as their owner would, without deciding them."""
    aggregate = CATEGORIES[category]
    loaded = (await store.load(category, {stream_id: 0})).streams[stream_id]
    state = aggregate.fold((*(recorded.event for recorded in loaded.events), *events))
    metadata = Metadata(
        tenant_group=GROUP,
        tenant=TENANT,
        actor=Actor(kind="system", name="test"),
        correlation=aggregate.run_id(state) or stream_id,
        causation=uuid4(),
    )
    append = Append(
        stream_id=stream_id,
        version=loaded.version,
        digest=loaded.digest,
        events=events,
        metadata=metadata,
        state=aggregate.status(state),
        columns=aggregate.columns(state),
        wake_at=None,
    )
    result = await store.append(category, [append])
    assert result.outbox is not None
    await store.published(result.outbox)


def _created(store: MemoryStore) -> r.RunCreated:
    return r.RunCreated(
        at=store.clock,
        definition_id="trial",
        hash="0" * 64,
        bundle=DIGEST,
        context={},
        initiated_by=OWNER,
        trigger=r.Trigger(kind="manual"),
    )


async def test_a_resume_that_is_sent_again_is_no_conflict_whatever_happened_since() -> None:
    """Found by seed 41: a reply was lost, and the person was refused what the command had done."""
    store, run_id, command_id = MemoryStore(), uuid4(), uuid4()
    at = store.clock
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=at), r.RunSuspended(at=at, reason="a pause"))
    resume = run.Resume(run_id=run_id, principal=LEADS[0], evidence=run.Evidence(bundle=bundle_of()))

    def item(command: run.RunCommand, causation: UUID) -> Item[run.RunCommand]:
        return Item(run_id, command, LEADS[0].actor, causation, tenant_group=GROUP, tenant=TENANT)

    async def send(*sent: Item[run.RunCommand]) -> Sequence[object]:
        # Another replica each time: what it knows, it knows from the history.
        bus = MemoryBus(MemoryBroker())
        await bus.start()
        owner = Owner(run.CATEGORY, run.decide, store=store, publisher=Publisher(bus, store), categories=CATEGORIES)
        return await owner.handle(sent)

    first = await send(item(resume, command_id))
    again, another = await send(item(resume, command_id), item(resume, uuid4()))

    assert isinstance(first[0], Done)
    assert first[0].changed
    assert isinstance(again, Done)
    assert not again.changed
    assert isinstance(another, Rejected)


async def test_a_woken_effect_that_failed_is_armed_again_as_its_run_asked_though_the_message_is_lost() -> None:
    """Found by seed 59: HISTORY was wiped with the only message that would ever have armed it."""
    store, bus, run_id = MemoryStore(), MemoryBus(MemoryBroker()), uuid4()
    effect_id, claim, at = ids.effect(run_id, "k"), uuid4(), store.clock
    await _write(store, "identity", OWNER.id, UserRegistered(at=at, email=OWNER.email, name="Lena", kind="user"))
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=at), *_writing(store, effect_id))
    await _write(
        store,
        "effect",
        effect_id,
        f.EffectDeclared(at=at, run_id=run_id, step="w", key="k", system="s", tool="t", arguments=DIGEST, owner=OWNER),
        f.EffectPending(at=at, claim=claim, arm=0, over_at=at + OVER_WITHIN),
        f.EffectFailed(at=at, claim=claim, failure_class="connector_unavailable", message="nobody listens"),
    )
    settings = Settings(postgres_dsn="postgresql://nowhere", nats_url="nats://nowhere")
    service = build(Tools(settings=settings, secrets=Secrets(), pool=None, store=store, bus=bus))
    await service.start()

    await store.wake_open("effect", {"failed"}, limit=10)
    await _wake(bus, effect_id)
    await service.stop()

    types = [recorded.type for recorded in store.history if recorded.stream_id == effect_id]
    assert types[3:5] == ["effect.rearmed", "effect.pending"]


async def test_a_command_that_changes_nothing_leaves_a_parked_run_due() -> None:
    """Found by seed 684: a bus was lost with an answer, and a needless resume swallowed the wake that would find it."""
    store, run_id, at = MemoryStore(), uuid4(), MemoryStore().clock
    waiting = r.RunStepWaiting(at=at, step="d", round=1, decision_id=uuid4(), artifact_step=None, artifact=None)
    parked = r.RunParked(at=at, on="decision")
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=at), waiting, parked)
    await store.wake_open("run", {"waiting_decision"}, limit=10)
    bus = MemoryBus(MemoryBroker())
    await bus.start()
    owner = Owner(run.CATEGORY, run.decide, store=store, publisher=Publisher(bus, store), categories=CATEGORIES)
    resume = run.Resume(run_id=run_id, principal=LEADS[0], evidence=run.Evidence(bundle=bundle_of()))

    item: Item[run.RunCommand] = Item(run_id, resume, LEADS[0].actor, uuid4())
    (done,) = await owner.handle([item])

    assert isinstance(done, Done)
    assert not done.changed
    assert store.rows["run"][run_id].wake_at == store.clock


async def test_a_late_message_of_a_failure_withdraws_nothing_of_a_run_that_was_retried_since() -> None:
    """Found by seed 482: the run waited for ever for a decision that nobody could answer any more."""
    store, bus, run_id, decision_id = MemoryStore(), MemoryBus(MemoryBroker()), uuid4(), uuid4()
    at = store.clock
    waiting = r.RunStepWaiting(at=at, step="d", round=1, decision_id=decision_id, artifact_step=None, artifact=None)
    failed = r.RunFailed(at=at, failure_class="timeout", reason="it took too long")
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=at), waiting, failed, r.RunResumed(at=at))
    opened = DecisionOpened(
        at=at,
        run_id=run_id,
        definition_id="trial",
        step="d",
        title="d",
        round=1,
        role="lead",
        binding=RoleBinding(roles=("lead",)),
        outcomes=("approve",),
        artifact_step=None,
        artifact=None,
        initiated_by=OWNER,
        project_id=None,
    )
    await _write(store, "decision", decision_id, opened)
    settings = Settings(postgres_dsn="postgresql://nowhere", nats_url="nats://nowhere")
    service = build_decision(Tools(settings=settings, secrets=Secrets(), pool=None, store=store, bus=bus))
    await service.start()

    envelope = Envelope(era=1, facts=(Address(stream_id=run_id, version=4, correlation=run_id),))
    await bus.publish([Message(history("run.failed"), envelope.model_dump_json().encode(), id="late")])
    await bus.quiesce()
    await service.stop()

    assert store.rows["decision"][decision_id].state == "open"


class _AwayOnceAnnounced(MemoryStore):
    """A store that takes a moment for each load, and answers none after an announcement."""

    def __init__(self) -> None:
        super().__init__()
        self.away = False

    async def load(
        self,
        category: str,
        after: Mapping[UUID, int],
        *,
        beside: Collection[tuple[str, UUID]] = (),
        snapshots: SnapshotKey | None = None,
    ) -> Load:
        await asyncio.sleep(0)
        if self.away:
            raise Unavailable("postgres.away", "the connection was cut")
        return await super().load(category, after, beside=beside, snapshots=snapshots)

    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        batch = await super().append(category, appends)
        self.away = any(isinstance(event, f.EffectPending) for each in appends for event in each.events)
        return batch


async def _declared(store: MemoryStore) -> UUID:
    """An effect of a run under way, of a server whose tool can be called."""
    run_id, at = uuid4(), store.clock
    effect_id = ids.effect(run_id, "k")
    arguments, content = blob({})
    tool = ToolDeclaration(name="t", timeout_seconds=5)
    server = ServerSynced(at=at, server_id="s", url_ref="url", token_ref=None, tools=(tool,), hash="0" * 64)
    declared = f.EffectDeclared(
        at=at, run_id=run_id, step="w", key="k", system="s", tool="t", arguments=arguments, owner=OWNER
    )
    await store.put_blobs(GROUP, {arguments.digest: content})
    await _write(store, "definition", ids.server(GROUP, "s"), server)
    await _write(store, "identity", OWNER.id, UserRegistered(at=at, email=OWNER.email, name="Lena", kind="user"))
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=at))
    await _write(store, "effect", effect_id, declared)
    return effect_id


async def _ledger(store: MemoryStore) -> tuple[Ledger, asyncio.Queue[None]]:
    """A ledger whose target never answers, and the calls that reached it."""
    bus = MemoryBus(MemoryBroker())
    await bus.start()
    calls = asyncio.Queue[None]()

    async def never_answers(_server: object, **_call: object) -> Outcome:
        calls.put_nowait(None)
        await asyncio.Event().wait()
        raise AssertionError

    gates = Gates()
    ledger = Ledger(
        owner=Owner(effect.CATEGORY, effect.decide, store=store, publisher=Publisher(bus, store)),
        store=store,
        connectors=Connectors(
            store, Secrets(overrides={"url": "http://target"}), Grants(store, Vault(None, Sealing(Secrets())))
        ),
        turns=Turns(calls_max=8, calls_per_server_max=8, gates=gates),
        gates=gates,
        start_within=timedelta(seconds=5),
        margin=timedelta(seconds=10),
        run_url=str,
        call=never_answers,
    )
    return ledger, calls


async def test_a_second_message_of_an_effect_does_not_take_the_place_of_its_call() -> None:
    """Found by seed 359: the store did not answer the second, and the call of the first was forgotten."""
    store = _AwayOnceAnnounced()
    effect_id = await _declared(store)
    ledger, calls = await _ledger(store)

    await asyncio.gather(ledger.begin({effect_id: 0}), ledger.begin({effect_id: 0}))
    await calls.get()
    store.away = False
    await ledger.drain(timedelta(0))

    assert store.rows["effect"][effect_id].state == "in_doubt"
    assert calls.empty()


class _AnnouncesNothing(MemoryStore):
    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        if any(isinstance(event, f.EffectPending) for each in appends for event in each.events):
            raise Unavailable("postgres.away", "the connection was cut")
        return await super().append(category, appends)


async def test_a_message_of_an_effect_whose_announcement_is_not_known_comes_again() -> None:
    """Found by seed 638: it was acknowledged meanwhile, and nobody else would ever have begun the effect."""
    store = _AnnouncesNothing()
    effect_id = await _declared(store)
    ledger, calls = await _ledger(store)

    met = await ledger.begin({effect_id: 0})
    assert ledger.calling(effect_id)
    assert isinstance(met[effect_id], Unavailable)
    assert await ledger.begin({effect_id: 0}) == met
    await ledger.drain(timedelta(seconds=9))
    assert calls.empty()


async def test_after_a_restore_no_verdict_is_taken_while_a_call_of_the_lost_time_may_be_under_way() -> None:
    """Read while the simulation learned to restore: a doubt of the record may have been settled, and called, since."""
    store = MemoryStore()
    effect_id, at, claim = await _declared(store), store.clock, uuid4()
    announced = f.EffectPending(at=at, claim=claim, arm=0, over_at=at + OVER_WITHIN)
    await _write(store, "effect", effect_id, announced, f.EffectInDoubt(at=at, claim=claim, reason="no answer"))
    store.advance(timedelta(hours=1))
    store.begin_era()
    bus = MemoryBus(MemoryBroker())
    service = build(
        Tools(settings=Settings(postgres_dsn="", nats_url=""), secrets=Secrets(), pool=None, store=store, bus=bus)
    )
    await service.start()

    async def settle() -> EffectChanged:
        verdict = SettleEffect(
            command_id=uuid4(),
            deadline=store.clock + timedelta(seconds=5),
            principal=LEADS[0],
            effect_id=effect_id,
            verdict="not_landed",
            arm=0,
            reference=None,
        )
        return await ask(bus, verdict, EffectChanged, timeout=timedelta(seconds=5))

    with pytest.raises(Rejected) as refused:
        await settle()
    assert refused.value.code == "effect.under_way"
    store.advance(effect.UNANNOUNCED_OVER)
    assert (await settle()).state == "failed"
    await service.stop()


async def test_what_is_asked_again_finds_late_what_was_asked_before() -> None:
    """Found by seed 60: the last of three asks was refused, then the first one was carried out after all."""
    bus = MemoryBus(MemoryBroker())
    heard: list[tuple[datetime, datetime]] = []
    thawed = asyncio.Event()

    async def frozen(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        heard.append((datetime.now(UTC), CancelRun.model_validate_json(data).deadline))
        await thawed.wait()
        return data

    bus.answer(CancelRun.subject, frozen)
    await bus.start()
    timeout = timedelta(seconds=0.3)
    command = CancelRun(
        command_id=uuid4(), deadline=datetime.now(UTC) + timeout, principal=LEADS[0], run_id=uuid4(), reason="no"
    )
    with pytest.raises(Unavailable, match="did not answer"):
        await ask(bus, command, RunChanged, timeout=timeout)
    thawed.set()
    await bus.stop()

    assert len(heard) > 1
    assert all(deadline <= again for (_, deadline), (again, _) in pairwise(heard))
    assert heard[-1][1] == command.deadline


async def test_a_command_that_was_decided_before_its_deadline_is_not_written_after_it() -> None:
    """Found by seed 274: a process froze between the two, and its command was refused elsewhere meanwhile."""

    class Freezing(MemoryStore):
        freezes = timedelta(0)

        async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
            self.clock += self.freezes
            return await super().append(category, appends)

    store, run_id = Freezing(), uuid4()
    await _write(store, "run", run_id, _created(store), r.RunStarted(at=store.clock))
    store.freezes = timedelta(seconds=30)
    bus = MemoryBus(MemoryBroker())
    await bus.start()
    owner = Owner(run.CATEGORY, run.decide, store=store, publisher=Publisher(bus, store), categories=CATEGORIES)
    cancel, deadline = run.Cancel(principal=LEADS[0], reason="no"), store.clock + timedelta(seconds=6)

    (late,) = await owner.handle([Item(run_id, cancel, LEADS[0].actor, uuid4(), deadline=deadline)])

    assert isinstance(late, Unavailable)
    assert store.rows["run"][run_id].state == "running"


async def test_commands_may_be_for_some_of_the_streams_that_were_read() -> None:
    """Found by a wake of two waits of which one was closed: the owner looked for a command of the other one."""
    store, run_ids = MemoryStore(), (uuid4(), uuid4())
    for run_id in run_ids:
        await _write(store, "run", run_id, _created(store), r.RunStarted(at=store.clock))
    bus = MemoryBus(MemoryBroker())
    await bus.start()
    owner = Owner(run.CATEGORY, run.decide, store=store, publisher=Publisher(bus, store), categories=CATEGORIES)
    cancel = run.Cancel(principal=LEADS[0], reason="no")
    item: Item[run.RunCommand] = Item(run_ids[0], cancel, LEADS[0].actor, uuid4(), tenant_group=GROUP, tenant=TENANT)

    (done,) = await owner.handle([item], loaded=await store.load("run", dict.fromkeys(run_ids, 0)))

    assert isinstance(done, Done)
    assert done.state.status == "cancelled"


def _writing(store: MemoryStore, effect_id: UUID) -> Sequence[Event]:
    at = store.clock
    first = r.RunStepWriting(at=at, step="w", round=1, effect_id=effect_id, effect_key="k", arm=0)
    retrying = r.RunStepRetrying(
        at=at, step="w", failure_class="connector_unavailable", message="", attempt=1, not_before=at + timedelta(1)
    )
    return first, retrying, first.model_copy(update={"arm": 1})


async def _wake(bus: MemoryBus, effect_id: UUID) -> None:
    """Deliver the scheduler's wake and wait until it is handled."""
    await bus.publish([wake_message("effect", "effects", [effect_id])])
    await bus.quiesce()

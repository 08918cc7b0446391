"""Notices against a real record, a real HTTP receiver and a real mail server: raised once, and sent."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from contracts.base import Actor, Principal
from contracts.commands import NoteFailingSource, RetryNotice
from contracts.events.run import RunFailed, RunSuspended
from contracts.replies import NoticeChanged, SourceNoted
from libs.domain import notice
from libs.ids import mint
from libs.process.asks import ask
from tests.support.notices import PUBLIC_URL, SECRET, World, open_world
from tests.support.postgres import Database
from tests.support.receivers import Taken, receiver
from tests.support.record import ListeningBus, eventually


@pytest.fixture
async def world(database: Database) -> AsyncIterator[World]:
    async with open_world(database) as world:
        yield world


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Taken]:
    async with receiver("http", tmp_path / "http", secret=SECRET) as taken:
        yield taken


async def test_a_decision_is_told_within_two_seconds_signed_and_without_the_artefact(world: World, http: Taken) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    _, bus = await world.service()
    due_at = await world.record.store.now() + timedelta(hours=4)
    decision_id = await world.decide(due_at=due_at)
    await world.tell(bus, "decision.opened", decision_id)
    await world.until("sent", within=timedelta(seconds=2))
    [notice_id] = await world.notices()
    [taken] = http.all()
    assert taken["verified"] is True
    assert taken["headers"]["webhook-id"] == str(notice_id)
    body = taken["body"]
    assert body["type"] == "decision.opened"
    assert body["data"] == {
        "notice_id": str(notice_id),
        "title": "To decide: Is it right?",
        "text": body["data"]["text"],
        "link": f"{PUBLIC_URL}/decisions/{decision_id}",
        "run_id": body["data"]["run_id"],
        "decision_id": str(decision_id),
        "definition_id": "core-dev",
        "step": "review",
        "role": "product_owner",
        "escalated_to": None,
        "due_at": due_at.isoformat(),
    }
    assert "artefact itself" not in str(taken)
    assert await world.record.types("notice", notice_id) == ["notice.raised", "notice.sending", "notice.sent"]


async def test_a_hundred_repeated_messages_at_two_replicas_raise_one_notice_and_send_it_once(
    world: World, http: Taken
) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    (_, first), (_, second) = await world.service(), await world.service()
    decision_id = await world.decide()
    await asyncio.gather(
        *(bus.tell("effects-notices", "decision.opened", *[decision_id] * 5) for bus in [first, second] * 10)
    )
    [notice_id] = await world.notices()
    await asyncio.gather(
        *(bus.tell("effects-notices", "notice.raised", *[notice_id] * 5) for bus in [first, second] * 10)
    )
    await world.until("sent")
    await first.tell("effects-notices", "notice.raised", notice_id)
    await second.wake("effects", "notice", notice_id)
    assert len(http.all()) == 1
    assert (await world.record.types("notice", notice_id)).count("notice.sending") == 1


async def test_stuck_overdue_in_doubt_and_failed_raise_one_notice_each(world: World, http: Taken) -> None:
    about = ("decision.reminded", "decision.escalated", "effect.in_doubt", "run.suspended", "run.failed")
    await world.channel("ops", "webhook", http.url, *about)
    _, bus = await world.service()
    now = await world.record.store.now()
    stuck, failed, by_hand, in_doubt = [await world.run() for _ in range(4)]
    suspended = RunSuspended(at=now, reason="attempts_exhausted", failure_class="timeout", step="draft")
    at = await world.stop(stuck, suspended)
    await world.stop(failed, RunFailed(at=now, failure_class="default", reason="it broke", step="draft"))
    await world.stop(by_hand, RunSuspended(at=now, reason="lunch", by=Actor(kind="user", id=uuid4(), name="dana")))
    effect_id = await world.doubt(in_doubt)
    await world.stop(in_doubt, RunSuspended(at=now, reason="in_doubt: …", step="open_pr", effect_id=effect_id))
    decision_id = await world.decide()
    await world.overdue(decision_id)
    for _ in range(3):
        await bus.tell("effects-notices", "run.suspended", stuck, by_hand, in_doubt, version=at)
        await bus.tell("effects-notices", "run.failed", failed, version=at)
        await bus.tell("effects-notices", "effect.in_doubt", effect_id, version=3)
        await bus.tell("effects-notices", "decision.reminded", decision_id, version=2)
        await bus.tell("effects-notices", "decision.escalated", decision_id, version=3)
        await world.send(bus)
    await world.until("sent", 5)
    told = {taken["body"]["type"]: taken["body"]["data"] for taken in http.all()}
    assert len(http.all()) == len(told) == 5
    assert set(told) == set(about)
    assert told["run.suspended"]["run_id"] == str(stuck)
    assert told["run.suspended"]["definition_id"] == "core-dev"
    assert told["run.failed"]["link"] == f"{PUBLIC_URL}/runs/{failed}"
    assert told["effect.in_doubt"]["effect_id"] == str(effect_id)
    assert told["decision.escalated"]["decision_id"] == str(decision_id)
    assert "moon" not in str(http.all())


async def test_a_channel_is_told_of_its_own_roles_and_workflows_since_it_was_declared(
    world: World, http: Taken
) -> None:
    _, bus = await world.service()
    before = await world.decide()
    await world.channel("other-role", "webhook", http.url, "decision.opened", roles=("lead",))
    await world.channel("other-flow", "webhook", http.url, "decision.opened", definitions=("hello",))
    await world.channel("off", "webhook", http.url)
    await world.channel(
        "mine", "webhook", http.url, "decision.opened", roles=("product_owner",), definitions=("core-dev",)
    )
    after = await world.decide()
    await bus.tell("effects-notices", "decision.opened", before, after)
    [found] = (await world.notices()).values()
    assert (found.channel_id, found.subject) == ("mine", after)


@pytest.mark.parametrize("fault", ["500", "503", "429", "drop", "redirect", "404"])
async def test_what_was_not_taken_is_sent_again_under_the_same_id(world: World, http: Taken, fault: str) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    _, bus = await world.service()
    http.misbehave(fault)
    await world.tell(bus, "decision.opened", await world.decide())

    async def put_off() -> bool:
        return [found.message is not None for found in (await world.notices("due")).values()] == [True]

    await eventually(put_off)
    [notice_id] = await world.notices()
    await bus.wake("effects", "notice", notice_id)
    assert len(http.all()) == 1, "its pause has not passed"
    await world.record.shift(notice.PAUSE_FIRST)
    await bus.wake("effects", "notice", notice_id)
    await world.until("sent")
    first, second = http.all()
    assert first["headers"]["webhook-id"] == second["headers"]["webhook-id"] == str(notice_id)
    assert first["body"] == second["body"]
    assert [one["path"] for one in http.all()] == ["/hook", "/hook"], "redirects are not followed"
    assert second["verified"] is True


async def test_a_receiver_that_is_gone_or_never_there_is_given_up_and_tried_again_by_hand(
    world: World, http: Taken
) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    _, bus = await world.service()
    http.misbehave("410")
    await world.tell(bus, "decision.opened", await world.decide())
    await world.until("failed")
    [notice_id] = await world.notices()
    assert await retry(world, bus, notice_id) == "due"
    await bus.tell("effects-notices", "notice.rearmed", notice_id)
    await world.until("sent")
    assert [taken["headers"]["webhook-id"] for taken in http.all()] == [str(notice_id)] * 2


async def test_a_timeout_is_sent_again_and_a_slow_channel_holds_up_no_other(world: World, http: Taken) -> None:
    await world.channel("slow", "webhook", http.url, "decision.opened")
    await world.channel("quick", "slack", http.url, "run.failed")
    _, bus = await world.service(notice_seconds=3, notice_tries_per_channel=2)
    http.misbehave(*["hang"] * 2)
    await world.tell(bus, "decision.opened", *[await world.decide() for _ in range(6)])

    async def slow() -> bool:
        return len(http.all()) == 2

    await eventually(slow)
    failed = await world.run()
    at = await world.stop(failed, RunFailed(at=await world.record.store.now(), failure_class="default", reason="no"))
    await bus.tell("effects-notices", "run.failed", failed, version=at)
    [quick] = [i for i, found in (await world.notices()).items() if found.channel_id == "quick"]
    await bus.tell("effects-notices", "notice.raised", quick)
    await world.until("sent", 1, within=timedelta(seconds=2))
    await world.until("sent", 5)
    assert {found.message for found in (await world.notices("due")).values()} == {"no answer: TimeoutError"}


async def test_while_a_secret_is_rotated_both_sign(world: World, http: Taken) -> None:
    world.secrets["ops_secret"] = "a new one, as text"
    world.secrets["ops_secret_previous"] = SECRET
    await world.channel("ops", "webhook", http.url, "decision.opened")
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())
    await world.until("sent")
    [taken] = http.all()
    assert taken["verified"] is True
    assert len(taken["headers"]["webhook-signature"].split(" ")) == 2


async def test_a_missing_secret_is_said_and_mended_later(world: World, http: Taken) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    url = world.secrets.pop("ops_url")
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())

    async def said() -> bool:
        return ["MINUTEBOOK_SECRET_OPS_URL" in (n.message or "") for n in (await world.notices("due")).values()] == [
            True
        ]

    await eventually(said)
    world.secrets["ops_url"] = url
    _, mended = await world.service()
    await world.record.shift(notice.PAUSE_FIRST)
    await mended.wake("effects", "notice", *await world.notices())
    await world.until("sent")


async def test_a_bus_that_lost_everything_is_made_up_for(world: World, http: Taken) -> None:
    """The scheduler tells of what still waits for somebody; what was told before is not told again."""
    about = ("decision.opened", "decision.escalated", "effect.in_doubt", "run.suspended", "run.failed")
    old = await world.run()
    await world.stop(old, RunFailed(at=await world.record.store.now(), failure_class="default", reason="long ago"))
    await world.channel("ops", "webhook", http.url, *about)
    _, bus = await world.service()
    now = await world.record.store.now()
    told, opened = await world.decide(), await world.decide()
    await world.overdue(opened)
    effect_id, stuck, failed = await world.doubt(), await world.run(), await world.run()
    await world.stop(stuck, RunSuspended(at=now, reason="wall_clock", failure_class="timeout"))
    await world.stop(failed, RunFailed(at=now, failure_class="default", reason="no"))
    await world.tell(bus, "decision.opened", told)
    await world.until("sent")
    for _ in range(2):
        await bus.wake("effects", "decision", told, opened)
        await bus.wake("effects", "run", stuck, failed, old)
        await bus.wake("effects", "effect", effect_id)
    await world.send(bus)
    await world.until("sent", 6)
    found = sorted((n.about, n.subject) for n in (await world.notices()).values())
    assert found == sorted(
        [
            ("decision.opened", told),
            ("decision.opened", opened),
            ("decision.escalated", opened),
            ("effect.in_doubt", effect_id),
            ("run.suspended", stuck),
            ("run.failed", failed),
        ],
    )


async def test_a_failing_source_is_told_of_once_an_hour(world: World, http: Taken) -> None:
    await world.channel("ops", "webhook", http.url, "source.failing")
    (_, bus), (_, other) = await world.service(), await world.service()
    for one in (bus, other, bus):
        await note_failing(world, one)
    await world.send(bus)
    await world.until("sent")
    await world.record.shift(timedelta(minutes=50))
    await note_failing(world, bus)
    assert len(await world.notices()) == 1, "also across the hour"
    await world.record.shift(timedelta(minutes=70))
    await note_failing(world, bus)
    assert len(await world.notices()) == 2
    [taken] = http.all()
    assert taken["body"]["data"]["title"] == "Failing source: jira"


async def test_what_is_under_way_is_ended_before_the_service_stops(world: World, http: Taken) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    await world.channel("chat", "slack", http.url, "decision.opened")
    service, bus = await world.service(drain_seconds=1, notice_tries_per_channel=1)
    http.misbehave("hang", "hang")
    await world.tell(bus, "decision.opened", await world.decide())

    async def both() -> bool:
        return len(http.all()) == 2

    await eventually(both)
    await service.stop()
    states = {found.channel_id: (found.status, found.message) for found in (await world.notices()).values()}
    reason = "the service stopped before it was answered"
    assert states == {"ops": ("due", reason), "chat": ("in_doubt", reason)}


async def test_only_administrators_send_again_and_only_what_is_over(world: World, http: Taken) -> None:
    await world.channel("ops", "webhook", http.url, "decision.opened")
    _, bus = await world.service()
    await world.tell(bus, "decision.opened", await world.decide())
    await world.until("sent")
    [notice_id] = await world.notices()
    for principal, id_, code in (
        (administrator(world), notice_id, "notice.not_over"),
        (administrator(world), uuid4(), "notice.not_found"),
        (administrator(world, tenant_group=uuid4()), notice_id, "notice.not_found"),
        (administrator(world, roles=frozenset()), notice_id, "notice.not_yours"),
    ):
        with pytest.raises(Exception, match=code):
            await retry(world, bus, id_, by=principal)


def administrator(world: World, **changed: object) -> Principal:
    return Principal.model_validate(
        {
            "kind": "user",
            "id": uuid4(),
            "name": "admin@example.com",
            "tenant_group": world.record.group,
            "tenant": world.record.tenant,
            "roles": frozenset({"platform_admin"}),
            **changed,
        }
    )


async def retry(world: World, bus: ListeningBus, notice_id: UUID, *, by: Principal | None = None) -> str:
    command = RetryNotice(
        command_id=mint(),
        deadline=await world.record.store.now() + timedelta(seconds=10),
        principal=by or administrator(world),
        notice_id=notice_id,
    )
    return (await ask(bus, command, NoticeChanged, timeout=timedelta(seconds=5))).state


async def note_failing(world: World, bus: ListeningBus) -> None:
    now = await world.record.store.now()
    command = NoteFailingSource(
        command_id=mint(),
        deadline=now + timedelta(seconds=10),
        principal=administrator(world, roles=frozenset()),
        source_id="jira",
        reason="webhook.signature",
        refused=10,
        since=now - timedelta(minutes=5),
    )
    await ask(bus, command, SourceNoted, timeout=timedelta(seconds=5))

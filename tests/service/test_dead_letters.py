"""What a service cannot do with a message: tried again, kept, seen, driven again; the rest of the message is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import asyncpg
import pytest

from contracts.envelope import Address, Envelope, Wake
from contracts.errors import Broken, Conflict, Malformed, MinutebookError, Rejected, Stopping, Unavailable
from contracts.subjects import DURABLES, DurableSpec
from libs.bus.declare import declare
from libs.bus.port import BatchHandler, Delivered, Disposition, Message
from libs.eventstore.letters import NewLetter, PostgresLetters
from libs.eventstore.postgres import PostgresStore
from libs.ids import mint
from libs.process.letters import CONFLICTS_PER_TRY, LetterBus, Letters
from libs.process.messages import envelope_handler, wake_handler
from services.host.letters import send_again
from tests.conformance.test_store_samples import GROUP, append, created
from tests.support.api import world
from tests.support.postgres import Database
from tests.support.record import eventually

DURABLE: DurableSpec = next(durable for durable in DURABLES if durable.name == "planner-history")
SUBJECT = "history.run.created"
TRIES = 3


@dataclass
class Kept:
    """Where letters are kept, with a database that a test takes away."""

    letters: list[NewLetter] = field(default_factory=list)
    away: bool = False

    async def keep(self, letters: Sequence[NewLetter]) -> None:
        if self.away:
            raise Unavailable("postgres.unreachable", "the test took it away")
        self.letters += letters


@dataclass
class Handled:
    """Facts and wakes, with an error for each stream that is to fail."""

    errors: dict[UUID, MinutebookError] = field(default_factory=dict)
    done: list[UUID] = field(default_factory=list)

    async def on_facts(self, _type: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        return self._take([fact.stream_id for fact in facts])

    async def on_wake(self, _category: str, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        return self._take(stream_ids)

    def _take(self, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        self.done += [i for i in stream_ids if i not in self.errors]
        return {i: self.errors[i] for i in stream_ids if i in self.errors}


def envelope(*stream_ids: UUID) -> bytes:
    facts = tuple(Address(stream_id=i, version=1, correlation=i) for i in stream_ids)
    return Envelope(era=1, facts=facts).model_dump_json().encode()


@pytest.fixture
def kept() -> Kept:
    return Kept()


def judged(kept: Kept, handler: BatchHandler) -> BatchHandler:
    return Letters(kept, "planner", tries_max=TRIES).judged(DURABLE, handler)


async def tell(handler: BatchHandler, *data: bytes, deliveries: int = 1) -> list[str]:
    told = await handler([Delivered(SUBJECT, each, {}, deliveries) for each in data])
    return [disposition.verdict for disposition in told]


async def test_the_broken_fact_of_a_message_is_kept_and_the_others_are_done(kept: Kept) -> None:
    fine, broken, other = mint(), mint(), mint()
    handled = Handled({broken: Broken("test.bug", "a bug")})
    handler = judged(kept, envelope_handler(handled.on_facts))
    assert await tell(handler, envelope(fine, broken), envelope(other)) == ["term", "ack"]
    assert set(handled.done) == {fine, other}
    (letter,) = kept.letters
    assert (letter.stream_id, letter.code, letter.message, letter.tries) == (broken, "test.bug", "a bug", 1)
    assert (letter.durable, letter.subject, letter.data) == ("planner-history", SUBJECT, envelope(broken))


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (Unavailable("secret.missing", "no secret"), TRIES),
        (Conflict("append.contended", "lost"), TRIES * CONFLICTS_PER_TRY),
        (Broken("test.bug", "a bug"), 1),
    ],
)
async def test_what_fails_again_and_again_is_kept_after_its_tries(
    kept: Kept, error: MinutebookError, tries: int
) -> None:
    fails = mint()
    handler = judged(kept, envelope_handler(Handled({fails: error}).on_facts))
    verdicts = [await tell(handler, envelope(fails), deliveries=n) for n in range(1, tries + 1)]
    assert verdicts == [["nak"]] * (tries - 1) + [["term"]]
    assert [letter.code for letter in kept.letters] == [error.code]


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("postgres.unreachable", "away"),
        Unavailable("bus.not_connected", "away"),
        Stopping("bus.stopping", "draining"),
    ],
)
async def test_an_outage_or_a_drain_never_makes_a_letter(kept: Kept, error: MinutebookError) -> None:
    fails = mint()
    handler = judged(kept, envelope_handler(Handled({fails: error}).on_facts))
    for n in range(1, 10 * TRIES):
        assert await tell(handler, envelope(fails), deliveries=n) == ["nak"]
    handled = Handled({fails: Unavailable("secret.missing", "no secret")})
    assert await tell(judged(kept, envelope_handler(handled.on_facts)), envelope(fails), deliveries=99) == ["nak"]
    assert kept.letters == [], "what an outage made come again often counts for nothing"


async def test_an_expected_no_makes_no_letter(kept: Kept) -> None:
    refused = mint()
    handler = judged(kept, envelope_handler(Handled({refused: Rejected("run.over", "over")}).on_facts))
    assert await tell(handler, envelope(refused)) == ["ack"]
    assert kept.letters == []


async def test_a_letter_that_cannot_be_written_sends_its_message_round(kept: Kept) -> None:
    broken = mint()
    handler = judged(kept, envelope_handler(Handled({broken: Broken("test.bug", "a bug")}).on_facts))
    kept.away = True
    assert await tell(handler, envelope(broken)) == ["nak"]
    kept.away = False
    assert await tell(handler, envelope(broken)) == ["term"]
    assert len(kept.letters) == 1


async def test_one_fact_that_is_given_up_does_not_end_a_message_that_another_needs_again(kept: Kept) -> None:
    broken, waits = mint(), mint()
    handled = Handled({broken: Broken("test.bug", "a bug"), waits: Unavailable("postgres.unreachable", "away")})
    handler = judged(kept, envelope_handler(handled.on_facts))
    assert await tell(handler, envelope(broken, waits)) == ["nak"]
    assert [letter.stream_id for letter in kept.letters] == [broken]
    del handled.errors[waits]
    assert await tell(handler, envelope(broken, waits)) == ["term"]
    assert waits in handled.done
    assert {letter.id for letter in kept.letters} == {kept.letters[0].id}, "the same letter again"


async def test_a_wake_that_fails_is_kept_beside_the_clock_that_repeats_it(kept: Kept) -> None:
    broken, fine = mint(), mint()
    handler = judged(kept, wake_handler(Handled({broken: Broken("test.bug", "a bug")}).on_wake))
    wake = Wake(category="run", stream_ids=(fine, broken)).model_dump_json().encode()
    assert await tell(handler, wake, wake) == ["ack", "ack"]
    (letter,) = kept.letters
    assert (letter.stream_id, letter.data) == (
        broken,
        Wake(category="run", stream_ids=(broken,)).model_dump_json().encode(),
    )


async def test_what_nobody_can_read_and_what_a_handler_trips_over_is_kept_whole(kept: Kept) -> None:
    handler = judged(kept, envelope_handler(Handled().on_facts))
    assert await tell(handler, b"no envelope") == ["term"]

    async def trips(_batch: Sequence[Delivered]) -> Sequence[Disposition]:
        raise KeyError("the payload")

    assert await tell(judged(kept, trips), b"\xff\x00") == ["term"]
    with pytest.raises(KeyError):
        await tell(judged(kept, trips), b"a", b"b")
    assert [(letter.code, letter.data) for letter in kept.letters] == [
        ("message.malformed", b"no envelope"),
        ("message.failed", b"\xff\x00"),
    ]
    assert "payload" not in kept.letters[1].message


async def test_an_outage_is_told_to_whoever_feeds_the_handler(kept: Kept) -> None:
    """Else each message of a batch would wait for the database by itself."""

    async def away(_batch: Sequence[Delivered]) -> Sequence[Disposition]:
        raise Unavailable("postgres.unreachable", "away")

    with pytest.raises(Unavailable):
        await tell(judged(kept, away), b"{}")

    async def hands_back(batch: Sequence[Delivered]) -> Sequence[Disposition]:
        return [Disposition("nak")] * len(batch)

    assert await tell(judged(kept, hands_back), b"{}") == ["nak"]
    assert kept.letters == []


def new(stream_id: UUID | None, data: bytes = b"{}", **changes: object) -> NewLetter:
    values = {"code": "test.bug", "message": "a bug\x00", "tries": 2} | changes
    return NewLetter(
        id=mint(),
        service="planner",
        durable=DURABLE.name,
        subject=SUBJECT,
        stream_id=stream_id,
        data=data,
        **values,  # type: ignore[arg-type]
    )


async def test_letters_are_kept_once_with_the_tenant_group_of_their_stream(pool: asyncpg.Pool) -> None:
    run = mint()
    await PostgresStore(pool).append("run", [append("run", run, created())])
    letters = PostgresLetters(pool)
    of_run, of_nobody = new(run, envelope(run)), new(None, b"\xff\x00")
    await letters.keep([of_run, of_nobody])
    await letters.keep([of_run])
    kept, unreadable = await letters.read(limit=10)
    assert (kept.id, kept.tenant_group, kept.data, kept.tries, kept.message) == (
        of_run.id,
        GROUP,
        envelope(run),
        4,
        "a bug",
    )
    assert (unreadable.tenant_group, unreadable.data) == (None, b"\xff\x00")
    assert [letter.id for letter in await letters.read(tenant_group=GROUP, limit=10)] == [of_run.id]
    assert await letters.read(tenant_group=mint(), limit=10) == []
    after = (kept.last_at, kept.id)
    assert [letter.id for letter in await letters.read(after=after, limit=10)] == [of_nobody.id]
    await letters.keep([of_run])
    await letters.drop([kept])
    assert len(await letters.read(limit=10)) == 2, "one that failed again meanwhile stays"
    await letters.drop(await letters.read(ids=[of_run.id], limit=1))
    assert [letter.id for letter in await letters.read(limit=10)] == [of_nobody.id]


@pytest.fixture
def letters(pool: asyncpg.Pool) -> PostgresLetters:
    return PostgresLetters(pool)


async def test_a_letter_is_driven_again_over_the_bus(letters: PostgresLetters, nats_url: str) -> None:
    """A poisonous message is kept, what comes after it is not held up, and once it is mended a retry has it done."""
    await declare(nats_url)
    broken, later = mint(), mint()
    handled = Handled({broken: Malformed("test.unread", "nobody reads it")})
    bus = LetterBus(nats_url, name="planner", letters=Letters(letters, "planner", tries_max=TRIES))
    bus.subscribe(DURABLE, envelope_handler(handled.on_facts))
    await bus.start()
    try:
        for n, stream_id in enumerate((broken, later)):
            await bus.publish([Message(SUBJECT, envelope(stream_id), id=f"m{n}")])

        async def kept() -> bool:
            return later in handled.done and len(await letters.read(limit=10)) == 1

        await eventually(kept)
        assert await send_again(letters, bus, None) != []
        await eventually(kept)  # it was not mended: the same letter again
        handled.errors.clear()
        (letter,) = await letters.read(limit=10)
        assert await send_again(letters, bus, letter.id) == [letter.id]

        async def done() -> bool:
            return broken in handled.done

        await eventually(done)
        assert await letters.read(limit=10) == []
        with pytest.raises(Rejected, match="no dead letter"):
            await send_again(letters, bus, letter.id)
    finally:
        await bus.stop()


async def test_administrators_see_the_letters_of_their_tenant_group(database: Database) -> None:
    async with world(database) as api:
        runs = [await api.start(key=f"CORE-{n}") for n in range(3)]
        letters = PostgresLetters(api.tools.require_pool())
        for run in runs:
            await letters.keep([new(run, envelope(run))])
        await letters.keep([new(None, b"nobody can read this")])
        first = await api.get("/dead-letters", params={"limit": 2})
        second = await api.get("/dead-letters", params={"limit": 2, "cursor": first["next_cursor"]})
        shown = [UUID(item["stream_id"]) for page in (first, second) for item in page["items"]]
        assert shown == runs[::-1]
        assert (first["items"][0]["code"], second["next_cursor"]) == ("test.bug", None)
        assert (await api.get("/dead-letters", by="outsider"))["items"] == []
        refused = await api.call("GET", "/dead-letters", by="dana")
        assert (refused.status_code, refused.json()["code"]) == (403, "dead_letter.not_yours")

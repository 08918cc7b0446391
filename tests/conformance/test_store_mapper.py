"""Events to stored bytes and back, and the digest over them."""

import hashlib
from uuid import UUID

import pytest
from eventsourcing.persistence import StoredEvent

from contracts.base import Event, JsonObject
from contracts.errors import Broken, Unavailable
from contracts.registry import registered
from libs.eventstore.mapper import PAYLOAD_BYTES_MAX, Mapper, chain, spill, spilled_digest
from libs.ids import mint
from tests.conformance.test_store_samples import AT, created, stage

STREAM = mint()


class Unregistered(Event):
    pass


def stored(topic: str, state: bytes) -> StoredEvent:
    return StoredEvent(originator_id=STREAM, originator_version=3, topic=topic, state=state)


@pytest.mark.parametrize("event", [created(context={"ä": [1.0, None, "\x00"]}), stage("one")])
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    row = Mapper().to_stored(event, STREAM, 3)
    assert (row.originator_id, row.originator_version) == (STREAM, 3)
    assert Mapper().to_event(row) == event


def test_topics_are_written_out() -> None:
    assert Mapper().to_stored(created(), STREAM, 1).topic == "run.created/1"
    assert all("/" not in name and name.count(".") == 1 for name, _ in registered())


def test_an_old_event_is_upcast_step_by_step() -> None:
    def rename(old: JsonObject) -> JsonObject:
        return {"at": old["at"], "name": old["title"]}

    def rename_again(old: JsonObject) -> JsonObject:
        return {"at": old["at"], "stage": old["name"]}

    mapper = Mapper({("run.stage_entered", -1): rename, ("run.stage_entered", 0): rename_again})
    at = AT.isoformat()
    assert mapper.to_event(stored("run.stage_entered/-1", f'{{"at":"{at}","title":"one"}}'.encode())) == stage("one")
    assert mapper.to_event(stored("run.stage_entered/0", f'{{"at":"{at}","name":"one"}}'.encode())) == stage("one")


@pytest.mark.parametrize("topic", ["run.stage_entered/2", "run.unheard/1"])
def test_an_unknown_event_waits_for_a_newer_replica(topic: str) -> None:
    with pytest.raises(Unavailable, match="newer replica"):
        Mapper().to_event(stored(topic, b"{}"))


@pytest.mark.parametrize("state", [b"{}", b"not json", b'{"at":"2026-03-02T09:00:00Z","stage":1}'])
def test_bytes_that_are_not_the_event(state: bytes) -> None:
    with pytest.raises(Broken, match=rf"version 3 of stream {STREAM}"):
        Mapper().to_event(stored("run.stage_entered/1", state))


def test_what_cannot_be_stored() -> None:
    with pytest.raises(Broken, match="Unregistered"):
        Mapper().to_stored(Unregistered(at=AT), STREAM, 1)
    with pytest.raises(Broken, match=r"run\.stage_entered cannot be written as JSON"):
        Mapper().to_stored(stage("\ud800"), STREAM, 1)


def test_a_long_payload_is_kept_by_its_digest() -> None:
    assert spill("x" * PAYLOAD_BYTES_MAX) == ("x" * PAYLOAD_BYTES_MAX, {})
    long = "x" * (PAYLOAD_BYTES_MAX + 1)
    digest = hashlib.sha256(long.encode()).hexdigest()
    assert spill(long) == (f'{{"$blob":"{digest}"}}', {digest: long.encode()})
    wide = "\N{EURO SIGN}" * (PAYLOAD_BYTES_MAX // 3 + 1)  # as many bytes in fewer characters
    assert spill(wide)[1] == {hashlib.sha256(wide.encode()).hexdigest(): wide.encode()}
    assert spilled_digest(spill(long)[0]) == digest
    assert spilled_digest('{"at":"now"}') is None


def test_the_digest_covers_each_part() -> None:
    parts = {
        "previous": b"p",
        "stream_id": STREAM,
        "version": 1,
        "category": "run",
        "type_": "run.created",
        "event_version": 1,
        "payload": "{}",
        "metadata": '{"a":1}',
    }
    changed = {
        "previous": b"q",
        "stream_id": UUID(int=1),
        "version": 2,
        "category": "attempt",
        "type_": "run.started",
        "event_version": 2,
        "payload": '{"a":1}',
        "metadata": "{}",
    }
    digests = {chain(**parts), *(chain(**{**parts, name: value}) for name, value in changed.items())}  # type: ignore[arg-type]
    assert len(digests) == len(parts) + 1

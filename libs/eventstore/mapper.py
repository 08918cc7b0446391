"""Events to stored bytes and back: written-out topics with versions, upcasting, and the digest that chains a stream."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final, cast
from uuid import UUID

from eventsourcing.persistence import StoredEvent
from pydantic import ValidationError

import contracts.events  # noqa: F401 - registers every event
from contracts.base import Event, JsonObject, Metadata
from contracts.errors import Broken, Unavailable
from contracts.registry import model_of, name_of
from libs.canonical import canonical, parse
from libs.eventstore.keyring import MARK
from libs.eventstore.people import Nobody, People
from libs.eventstore.personal import M, places_of

PAYLOAD_BYTES_MAX: Final = 8 * 1024
"""A longer payload goes to `blobs`; the event then holds its digest."""

SPILLED_PREFIX: Final = '{"$blob":"'
"""How the stored payload of such an event begins. No event's own JSON does: its first key is one of its fields."""

METADATA_CACHED_MAX: Final = 1_024

_UPCAST_BYTES_MAX: Final = 64 << 20
_SURELY_SHORT_CHARS: Final = PAYLOAD_BYTES_MAX // 4
_NO_BLOB: Final[Mapping[str, bytes]] = {}
_MARK: Final = MARK.encode()
_NO_STREAM: Final = UUID(int=0)
"""Metadata says of itself whose it is."""

Upcast = Callable[[JsonObject], JsonObject]
"""Turns the JSON of one version of an event into that of the next."""


class Mapper:
    """Maps events by the conventions of `eventsourcing`, for pydantic models and an asyncpg recorder.

    `upcasts` maps (type, version) to the step towards version + 1. The library's own mapper cannot serve: on pydantic
    models it yields half-built objects, or drops upcasting. Personal texts are sealed and opened with the keys that
    `people` have in their ring, so `know` and `recall` come first; without people they stay as they are.
    """

    def __init__(
        self, upcasts: Mapping[tuple[str, int], Upcast] | None = None, *, people: People | None = None
    ) -> None:
        self._upcasts = upcasts or {}
        self._metadata: dict[str, Metadata] = {}
        self._erasures = 0
        self._sealing = people is not None
        self.people: People = people or Nobody()

    def persons(self, metadata: Metadata, facts: Iterable[tuple[UUID, Event]]) -> dict[UUID, UUID]:
        """Whose texts facts (stream, event) hold, for `know`."""
        found: dict[UUID, UUID] = {}
        if self._sealing:
            if metadata.actor.person is not None:
                found[metadata.actor.person] = metadata.tenant_group
            for stream_id, event in facts:
                places = places_of(type(event))
                if places is not None:
                    found.update(dict.fromkeys(places.persons(event, stream_id), metadata.tenant_group))
        return found

    def sealed(self, value: M, stream_id: UUID) -> M:
        """A value of a model with its personal texts sealed."""
        places = places_of(type(value)) if self._sealing else None
        return value if places is None else places.turned(value, stream_id, self.people.ring.seal)

    def opened(self, value: M, stream_id: UUID) -> M:
        """A value of a model with its sealed texts opened, or erased."""
        places = places_of(type(value)) if self._sealing else None
        return value if places is None else places.turned(value, stream_id, self.people.ring.open)

    def to_stored(self, event: Event, stream_id: UUID, version: int) -> StoredEvent:
        """Return the event as it is stored, under its topic `<type>/<version of its schema>`; raises as `write`."""
        name, event_version, state = self.write(event, stream_id)
        return StoredEvent(
            originator_id=stream_id, originator_version=version, topic=f"{name}/{event_version}", state=state.encode()
        )

    def write(self, event: Event, stream_id: UUID) -> tuple[str, int, str]:
        """Return the type of a stream's event, the version of its schema, and its JSON.

        Raises:
            contracts.errors.Broken: the event's model is not registered, or holds what is no JSON.
        """
        try:
            name, event_version = name_of(type(event))
        except KeyError:
            raise Broken("event.unregistered", f"{type(event).__name__} is in no registry of events") from None
        try:
            return name, event_version, self.sealed(event, stream_id).model_dump_json()
        except ValueError as error:  # a lone surrogate, for example
            raise Broken("event.not_json", f"{name} cannot be written as JSON: {type(error).__name__}") from None

    def to_event(self, stored: StoredEvent) -> Event:
        """Return the event that was stored; raises as `read`."""
        name, version = split_topic(stored.topic)
        return self.read(name, version, stored.state, stored.originator_id, stored.originator_version)

    def read(self, name: str, version: int, state: str | bytes, stream_id: UUID | str, at: int) -> Event:
        """Return the event that this JSON is, upcast to the newest version that this process knows.

        `stream_id` and `at` say where it stands.

        Raises:
            contracts.errors.Unavailable: the type or version is unknown here; a newer replica may know it.
            contracts.errors.Broken: the stored bytes are not what their type says.
        """
        while (step := self._upcasts.get((name, version))) is not None:
            stored = parse(
                state if isinstance(state, bytes) else state.encode(), what=name, bytes_max=_UPCAST_BYTES_MAX
            )
            if not isinstance(stored, dict):
                raise Broken("event.unreadable", f"{name}/{version} of stream {stream_id} is no JSON object")
            state = canonical(step(stored))
            version += 1
        model = model_of(name, version)
        if model is None:
            raise Unavailable(
                "event.unknown",
                f"{name} version {version} (stream {stream_id}, version {at})"
                " is unknown to this release; a newer replica can read it",
            )
        try:
            event = model.model_validate_json(state)
        except ValidationError as error:
            places = ", ".join(".".join(map(str, e["loc"])) for e in error.errors(include_input=False)[:5])
            raise Broken(
                "event.unreadable",
                f"{name} version {version} at version {at} of stream {stream_id}"
                f" does not fit its model at: {places or 'the root'}",
            ) from None
        sealed = MARK in state if isinstance(state, str) else _MARK in state
        return self.opened(event, cast(UUID, stream_id)) if sealed else event

    def write_metadata(self, metadata: Metadata) -> str:
        if metadata.actor.person is not None:
            metadata = self.sealed(metadata, _NO_STREAM)
        return metadata.model_dump_json()

    def read_metadata(self, text: str) -> Metadata:
        """The metadata that a text is. Facts that were written together have the same one."""
        if self._erasures != self.people.ring.erasures:
            self._erasures = self.people.ring.erasures
            self._metadata.clear()
        found = self._metadata.get(text)
        if found is None:
            if len(self._metadata) >= METADATA_CACHED_MAX:
                self._metadata.clear()
            found = Metadata.model_validate_json(text)
            if MARK in text:
                found = self.opened(found, _NO_STREAM)
            self._metadata[text] = found
        return found


def split_topic(topic: str) -> tuple[str, int]:
    """Return the type and version that a topic names."""
    name, _, version = topic.rpartition("/")
    return name, int(version)


def spill(payload: str) -> tuple[str, Mapping[str, bytes]]:
    """Return the payload as its column keeps it, and the blob that it needs when it is too long for it."""
    if len(payload) <= _SURELY_SHORT_CHARS:
        return payload, _NO_BLOB
    content = payload.encode()
    if len(content) <= PAYLOAD_BYTES_MAX:
        return payload, _NO_BLOB
    digest = hashlib.sha256(content).hexdigest()
    return f'{SPILLED_PREFIX}{digest}"}}', {digest: content}


def spilled_digest(payload: str) -> str | None:
    """Return the digest that a stored payload stands for, or None when it is the payload itself."""
    return payload[len(SPILLED_PREFIX) :].removesuffix('"}') if payload.startswith(SPILLED_PREFIX) else None


def chain(
    previous: bytes,
    *,
    stream_id: UUID,
    version: int,
    category: str,
    type_: str,
    event_version: int,
    payload: str,
    metadata: str,
) -> bytes:
    """Return the digest of an event: over the one before it, its address, and its bytes as stored.

    The three parts are JSON texts, which end where they end, so no two events have the same concatenation. Categories
    and types are words in ASCII: nothing of the first part needs escaping.
    """
    header = f'["{stream_id}",{version},"{category}","{type_}",{event_version}]'
    return hashlib.sha256(previous + f"{header}{payload}{metadata}".encode()).digest()

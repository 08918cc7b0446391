"""What a runner knows of the attempts that it has just claimed: their streams and their requests."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from contracts.errors import Unavailable
from libs.domain import attempt
from libs.eventstore.port import Claimed, Load, Loaded, Store
from services.runner.execution import Work


async def read_claimed(store: Store, claimed: Sequence[Claimed], *, now: datetime) -> tuple[list[Work], Load]:
    """Return claimed attempts, in order, and their streams. Most came with their claim: only the others are asked for.

    `now` is the database's clock as the claim had it.

    Raises:
        contracts.errors.MinutebookError: the store does not answer, or a stream cannot be read here.
    """
    streams = {claim.attempt_id: claim.stream for claim in claimed if claim.stream is not None}
    missing = [claim.attempt_id for claim in claimed if claim.stream is None]
    if missing:
        load = await store.load(attempt.CATEGORY.name, dict.fromkeys(missing, 0))
        streams |= load.streams
        now = load.now
    states = {claim.attempt_id: _fold(streams[claim.attempt_id]) for claim in claimed}
    requests = await _requests(store, claimed, streams, states)
    works = [
        Work(
            attempt_id=claim.attempt_id,
            claim=claim.claim,
            state=states[claim.attempt_id],
            content=requests.get(claim.attempt_id),
            traceparent=streams[claim.attempt_id].events[0].metadata.traceparent,
        )
        for claim in claimed
    ]
    return works, Load(now, streams)


def _fold(stream: Loaded) -> attempt.State:
    if stream.tenant_group is None:
        raise Unavailable("attempt.not_seen", "a claimed attempt is not visible yet")
    return attempt.CATEGORY.fold(tuple(recorded.event for recorded in stream.events))


async def _requests(
    store: Store, claimed: Sequence[Claimed], streams: Mapping[UUID, Loaded], states: Mapping[UUID, attempt.State]
) -> Mapping[UUID, bytes]:
    """The requests by attempt; what is stored nowhere is left out. One query for each tenant group at most."""
    requests = {claim.attempt_id: claim.request for claim in claimed if claim.request is not None}
    wanted: defaultdict[UUID, dict[UUID, str]] = defaultdict(dict)
    for attempt_id, state in states.items():
        group = streams[attempt_id].tenant_group
        if attempt_id not in requests and state.request is not None and group is not None:
            wanted[group][attempt_id] = state.request.digest
    for group, digests in wanted.items():
        found = await store.blobs(group, set(digests.values()))
        requests |= {attempt_id: found[digest] for attempt_id, digest in digests.items() if digest in found}
    return requests

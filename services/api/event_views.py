"""Inbound events: what came, and what followed each time that it was handed on."""

from typing import Any
from uuid import UUID

from contracts.base import Actor, Principal
from contracts.errors import Broken, Rejected
from contracts.events import inbound as n
from contracts.replies import EventRouted
from libs.domain import inbound
from libs.eventstore.port import Store
from minutebook.models import ActorView, EventResumed, EventRouting, EventSkipped, EventStarted, EventView
from services.api.reads import Reads, content_of, fold


class EventViews:
    """Reads of inbound events. Callers have judged that they may be seen."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reads = Reads(store)

    async def view(self, caller: Principal, event_id: UUID) -> EventView:
        """An event with its payload and all that followed.

        Raises:
            contracts.errors.Rejected: 404.
        """
        histories = await self._reads.histories("inbound", caller.tenant_group, [event_id])
        if event_id not in histories:
            accepted = await self._accepted(caller, event_id)
            if accepted is not None:
                return accepted
            # It may have been recorded between the two looks.
            histories = await self._reads.histories("inbound", caller.tenant_group, [event_id])
        if event_id not in histories:
            raise Rejected("event.not_found", f"there is no inbound event {event_id}", status=404)
        history = histories[event_id]
        received = history[0].event
        if not isinstance(received, n.InboundReceived):
            raise Broken("stream.no_birth", f"the history of inbound event {event_id} does not begin with its birth")
        state = fold(inbound.CATEGORY, history)
        contents = await self._reads.contents(caller.tenant_group, [received.payload])
        events = [recorded.event for recorded in history]
        return EventView.model_validate(
            {
                "event_id": event_id,
                "source": received.source,
                "event": received.event,
                "external_id": received.external_id,
                "state": state.status,
                "received_at": received.at,
                "unmatched": state.unmatched,
                "keys": received.keys,
                "payload": content_of(contents, received.payload),
                "body_sha256": received.body_sha256,
                "bodies_differed": sum(isinstance(event, n.InboundBodyDiffered) for event in events),
                "routings": [routing for event in events if (routing := _routing(event)) is not None],
            }
        )

    async def _accepted(self, caller: Principal, event_id: UUID) -> EventView | None:
        """A delivery that was accepted and is not recorded yet."""
        delivery = next(iter(await self._store.deliveries([event_id])), None)
        if delivery is None or delivery.tenant_group != caller.tenant_group or delivery.received_at is None:
            return None
        contents = await self._reads.contents(caller.tenant_group, [delivery.payload])
        return EventView(
            event_id=event_id,
            source=delivery.source,
            event=delivery.event,
            external_id=delivery.external_id,
            state="received",
            received_at=delivery.received_at,
            unmatched=None,
            keys=dict(delivery.keys),
            payload=content_of(contents, delivery.payload),
            body_sha256=delivery.body_sha256,
            bodies_differed=0,
            routings=(),
        )


def followed(routed: n.InboundRouted | n.InboundReplayed | EventRouted) -> dict[str, Any]:
    """What followed, as the fields of `EventFollowed`."""
    return {
        "started": tuple(EventStarted(definition_id=s.definition_id, run_id=s.run_id) for s in routed.started),
        "resumed": tuple(EventResumed(run_id=r.run_id, step=r.step) for r in routed.resumed),
        "skipped": tuple(EventSkipped(definition_id=s.definition_id, reason=s.reason) for s in routed.skipped),
        "unmatched": routed.unmatched,
    }


def _routing(event: object) -> EventRouting | None:
    match event:
        case n.InboundRouted() | n.InboundReplayed():
            by = _actor(event.by) if isinstance(event, n.InboundReplayed) else None
            return EventRouting(how="routed" if by is None else "replayed", at=event.at, by=by, **followed(event))
        case n.InboundDelivered():
            resumed = EventResumed(run_id=event.run_id, step=event.step)
            return EventRouting(how="delivered", at=event.at, by=_actor(event.by), resumed=(resumed,))
        case _:
            return None


def _actor(actor: Actor) -> ActorView:
    return ActorView.model_validate(actor.model_dump())

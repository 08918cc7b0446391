"""What a person may ask of a recorded event: that it be routed again, or handed to one waiting step."""

from uuid import UUID

from contracts.base import Principal
from contracts.commands import DeliverEvent, NoteDifferentBody, ReplayEvent
from contracts.errors import MinutebookError, Rejected
from contracts.events.inbound import ResumedRun
from contracts.replies import BodyNoted, EventRouted
from libs.domain import wait
from libs.domain.access import is_administrator
from libs.domain.inbound import Command, Delivered, NoteBody, Outcome, Replay, State
from libs.domain.wait import Deliver
from libs.eventstore.port import Loaded, Store
from libs.owner import Item, Owner
from services.ingest.events import Events, Recorded
from services.ingest.waits import Offer, arrival_of


class Asks:
    """Plain functions over the owners of both categories. Replaying and delivering are an administrator's."""

    def __init__(
        self,
        owner: Owner[State, Command],
        waits: Owner[wait.State, wait.Command],
        store: Store,
        events: Events,
    ) -> None:
        self._owner = owner
        self._waits = waits
        self._store = store
        self._events = events

    async def replay(self, asked: ReplayEvent) -> EventRouted:
        """Route a recorded event again; the same command again gets the same reply.

        Raises:
            contracts.errors.Rejected: ``event.not_yours`` (403), ``event.not_found`` (404), ``event.not_routed`` (409).
        """
        event = await self._event(asked.inbound_id, asked.principal)
        command_id = asked.command_id
        if command_id not in event.state.answered:
            offer = Offer(
                event.tenant_group, arrival_of(asked.inbound_id, event.state), command_id, asked.principal.actor
            )
            routings = await self._events.routings({asked.inbound_id: event}, {asked.inbound_id: offer})
            routing = routings[asked.inbound_id]
            if isinstance(routing, MinutebookError):
                raise routing
            replay = Replay(routing=routing, command_id=command_id, by=asked.principal.actor)
            event = await self._record(asked, replay)
        return _reply(asked.inbound_id, event.state.answered[command_id])

    async def deliver(self, asked: DeliverEvent) -> EventRouted:
        """Hand a recorded event to a run's waiting step; the same command again gets the same reply.

        Raises:
            contracts.errors.Rejected: ``event.not_yours`` (403); ``event.not_found``, ``wait.not_found`` (404);
                ``wait.closed``, ``wait.matched``, ``wait.consumed``, and ``append.guarded`` when the run is over (409).
        """
        event = await self._event(asked.inbound_id, asked.principal)
        if asked.command_id not in event.state.answered:
            wait_id = await self._wait(asked)
            item: Item[wait.Command] = Item(
                stream_id=wait_id,
                command=Deliver(arrival=arrival_of(asked.inbound_id, event.state), by=asked.principal.actor),
                actor=asked.principal.actor,
                causation=asked.command_id,
                tenant_group=asked.principal.tenant_group,
                traceparent=asked.traceparent,
                deadline=asked.deadline,
            )
            (result,) = await self._waits.handle([item])
            if isinstance(result, MinutebookError):
                raise result
            resumed = ResumedRun(run_id=asked.run_id, step=asked.step, wait_id=wait_id)
            delivered = Delivered(command_id=asked.command_id, by=asked.principal.actor, resumed=resumed)
            event = await self._record(asked, delivered)
        return _reply(asked.inbound_id, event.state.answered[asked.command_id])

    async def note_different_body(self, asked: NoteDifferentBody) -> BodyNoted:
        """Keep the digest of another body that came under an event's external id.

        Raises:
            contracts.errors.Rejected: ``event.not_found`` (404).
        """
        if not await self._events.recorded([asked.inbound_id]):
            await self._events.take([asked.inbound_id])  # the first delivery may wait for ingest itself
        await self._record(asked, NoteBody(body_sha256=asked.body_sha256))
        return BodyNoted(inbound_id=asked.inbound_id)

    async def _event(self, inbound_id: UUID, principal: Principal) -> Recorded:
        if not is_administrator(principal):
            raise Rejected("event.not_yours", "events are routed again and delivered by administrators", status=403)
        event = (await self._events.recorded([inbound_id])).get(inbound_id)
        if event is None or event.tenant_group != principal.tenant_group:
            raise Rejected("event.not_found", "there is no such event", status=404)
        return event

    async def _wait(self, asked: DeliverEvent) -> UUID:
        """The step's wait: the one that this command gave its event before, else the one that is open, else any."""
        heads = await self._store.heads_of_runs(
            wait.CATEGORY.name, [asked.run_id], states=("opening", "open", "matched", "closed")
        )
        load = await self._store.load(wait.CATEGORY.name, dict.fromkeys((head.stream_id for head in heads), 0))
        of_step = {
            loaded.stream_id: (_caused(loaded, asked.command_id), state.status in wait.OPEN, loaded.events[0].position)
            for loaded in load.streams.values()
            if loaded.tenant_group == asked.principal.tenant_group
            and (state := wait.CATEGORY.fold(tuple(r.event for r in loaded.events))).step == asked.step
        }
        if not of_step:
            raise Rejected(
                "wait.not_found",
                f"step {asked.step!r} of run {asked.run_id} has not waited for an event",
                status=404,
            )
        return max(of_step, key=lambda wait_id: of_step[wait_id])

    async def _record(self, asked: ReplayEvent | DeliverEvent | NoteDifferentBody, command: Command) -> Recorded:
        item: Item[Command] = Item(
            stream_id=asked.inbound_id,
            command=command,
            actor=asked.principal.actor,
            causation=asked.command_id,
            tenant_group=asked.principal.tenant_group,
            traceparent=asked.traceparent,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            if result.code == "stream.not_found":
                raise Rejected("event.not_found", "there is no such event", status=404)
            raise result
        return Recorded(asked.principal.tenant_group, result.state)


def _caused(loaded: Loaded, command_id: UUID) -> bool:
    return loaded.events[-1].metadata.causation == command_id


def _reply(inbound_id: UUID, outcome: Outcome) -> EventRouted:
    return EventRouted(
        inbound_id=inbound_id,
        started=outcome.started,
        skipped=outcome.skipped,
        resumed=outcome.resumed,
        unmatched=outcome.unmatched,
    )

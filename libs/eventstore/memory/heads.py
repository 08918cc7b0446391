"""Reads of head rows in memory."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from uuid import UUID

from libs.eventstore.heads import heads_of
from libs.eventstore.memory.holding import Head, Holding
from libs.eventstore.port import (
    Arrived,
    Earlier,
    HeadView,
    LineHead,
)


class MemoryHeads(Holding):
    """As `libs.eventstore.heads_reading` has them."""

    async def heads(self, category: str, stream_ids: Collection[UUID]) -> Mapping[UUID, HeadView]:
        rows = self.rows[heads_of(category).category]
        return {i: self._view(i, rows[i]) for i in stream_ids if i in rows}

    async def heads_of_runs(
        self, category: str, run_ids: Collection[UUID], *, states: Collection[str]
    ) -> Sequence[HeadView]:
        return [
            self._view(stream_id, head)
            for stream_id, head in sorted(self.rows[heads_of(category).category].items())
            if head.columns["run_id"] in run_ids and head.state in states
        ]

    async def forks_of(self, run_ids: Collection[UUID], *, states: Collection[str]) -> Sequence[UUID]:
        runs = self.rows["run"]
        found: set[UUID] = set()
        begun = frozenset(run_ids)
        while begun := frozenset(i for i, head in runs.items() if head.columns["parent"] in begun) - found:
            found |= begun
        return sorted(i for i in found if runs[i].state in states)

    async def identities(self, tenant_group: UUID, kind: str, *, name: str | None = None) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["identity"].items())
            if head.tenant_group == tenant_group
            and head.state == "active"
            and head.columns["kind"] == kind
            and name in (None, head.columns["name"])
        ]

    async def holders(self, tenant_group: UUID, held: Collection[str]) -> Sequence[UUID]:
        rows, users = self.rows["identity"], await self.identities(tenant_group, "user")
        return [i for i in users if not set(held).isdisjoint(rows[i].columns["holds"])]

    async def open_decisions(self, tenant_group: UUID) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["decision"].items())
            if head.tenant_group == tenant_group and head.state == "open"
        ]

    async def started_by(self, tenant_group: UUID, sources: Collection[str]) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["definition"].items())
            if head.tenant_group == tenant_group
            and head.columns["kind"] == "workflow"
            and head.columns["enabled"]
            and not set(sources).isdisjoint(head.columns["event_sources"])
        ]

    async def declared(self, tenant_group: UUID, kind: str) -> Sequence[UUID]:
        return [
            stream_id
            for stream_id, head in sorted(self.rows["definition"].items())
            if head.tenant_group == tenant_group and head.columns["kind"] == kind
        ]

    async def waits_of_events(self, arrived: Sequence[Arrived]) -> Sequence[Sequence[UUID]]:
        return [[i for i, head in sorted(self.rows["wait"].items()) if _is_asked(head, event)] for event in arrived]

    async def earlier_events(
        self, asked: Sequence[Earlier], *, limit: int
    ) -> Sequence[Sequence[tuple[datetime, UUID]]]:
        return [
            sorted(
                (head.columns["received_at"], stream_id)
                for stream_id, head in self.rows["inbound"].items()
                if _is_earlier(stream_id, head, each)
            )[:limit]
            for each in asked
        ]

    async def scheduled(self) -> Sequence[UUID]:
        return [i for i, head in sorted(self.rows["definition"].items()) if head.columns["schedules"] > 0]

    async def lines(self, definitions: Collection[tuple[UUID, str]] | None = None) -> Sequence[LineHead]:
        found = [
            LineHead(i, head.tenant_group, head.columns["definition_id"], head.state)
            for i, head in sorted(self.rows["schedule"].items())
        ]
        if definitions is None:
            return [line for line in found if line.state != "retired"]
        return [line for line in found if (line.tenant_group, line.definition_id) in definitions]

    def _view(self, stream_id: UUID, head: Head) -> HeadView:
        return HeadView(
            stream_id=stream_id,
            version=head.version,
            state=head.state,
            run_id=head.columns.get("run_id"),
            claim=head.claim,
            lease_until=head.lease_until,
            lease_ended=head.lease_until is None or head.lease_until <= self.clock,
            finished_at=head.columns.get("finished_at"),
        )


def _is_asked(wait: Head, event: Arrived) -> bool:
    open_ = wait.state in {"opening", "open"} and wait.columns["probe"] in event.probes
    asks = open_ and wait.columns["source"] == event.source
    return wait.tenant_group == event.tenant_group and (asks or wait.columns["inbound_id"] == event.inbound_id)


def _is_earlier(inbound_id: UUID, head: Head, asked: Earlier) -> bool:
    received_at: datetime = head.columns["received_at"]
    return (
        (head.tenant_group, head.columns["source"]) == (asked.tenant_group, asked.source)
        and received_at >= asked.since
        and asked.event in (None, head.columns["event"])
        and (asked.after is None or (received_at, inbound_id) > asked.after)
    )

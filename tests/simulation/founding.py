"""What stands in the record before the first step: people, a project and the definitions."""

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from contracts import ids
from contracts.base import Actor, Principal
from contracts.commands import SyncDefinitions
from libs.bus.memory import MemoryBroker, MemoryBus
from libs.domain import identity
from libs.eventstore.memory import MemoryStore
from libs.eventstore.port import Append, BatchResult
from libs.ids import mint, nonce, seeded
from libs.owner import Item, Owner, Publisher
from services.planner.definitions import Definitions
from tests.simulation import catalogue
from tests.simulation.loop import VirtualLoop
from tests.simulation.people import DEVELOPER, GROUP, LEADS, TENANT

_written: list[tuple[str, Sequence[Append]]] = []


class _Noting(MemoryStore):
    async def append(self, category: str, appends: Sequence[Append]) -> BatchResult:
        _written.append((category, appends))
        return await super().append(category, appends)


def fresh_store() -> MemoryStore:
    """A record in which people, a project and the definitions stand already; made once, repeated for each seed."""
    store = MemoryStore(mint_claim=nonce)
    with seeded(Random(0)), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        if not _written:
            runner.run(_found())
        runner.run(_repeat(store))
    return store


async def _repeat(store: MemoryStore) -> None:
    for category, appends in _written:
        result = await store.append(category, appends)
        assert result.outbox is not None
        await store.published(result.outbox)


async def _found() -> None:
    store = _Noting()
    bus = MemoryBus(MemoryBroker())
    await bus.start()
    publisher = Publisher(bus, store)
    owner: Owner[identity.State, identity.Command] = Owner(
        identity.CATEGORY, identity.decide, store=store, publisher=publisher
    )
    workflows = LEADS[0].model_copy(update={"name": "workflows@example.com"})
    people = [(person, "user") for person in (DEVELOPER, *LEADS)] + [(workflows, "service_user")]
    commands: list[tuple[Any, identity.Command]] = [
        (
            _user(p),
            identity.RegisterUser.model_validate(
                {"email": p.name, "name": p.name, "kind": kind, "roles": p.roles, "projects": p.projects}
            ),
        )
        for p, kind in people
    ]
    commands.append((ids.project(GROUP, "core"), identity.CreateProject(key="core", name="Core")))
    for stream_id, command in commands:
        item = Item(stream_id, command, Actor(kind="system", name="api"), mint(), tenant_group=GROUP, tenant=TENANT)
        (done,) = await owner.handle([item])
        assert not isinstance(done, Exception), done
    await Definitions(store, publisher).sync(
        SyncDefinitions(command_id=mint(), deadline=store.clock, principal=LEADS[0], files=catalogue.files())
    )


def _user(person: Principal) -> Any:
    return ids.user(GROUP, person.name)

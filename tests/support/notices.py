"""Notices for tests: a record with channels and people, facts to tell of, and the effects service that tells them."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

from contracts import ids
from contracts.events.decision import DecisionEscalated, DecisionOpened, DecisionReminded
from contracts.events.definition import ChannelSynced
from contracts.events.effect import EffectDeclared, EffectInDoubt, EffectPending
from contracts.events.identity import UserRegistered
from contracts.events.run import RoleBinding, RunCreated, RunFailed, RunStarted, RunSuspended, Trigger, UserRef
from libs.domain import decision, definition, effect, identity, notice, run
from libs.process import Service
from services.effects.app import build
from tests.support.postgres import Database
from tests.support.record import ListeningBus, Record, eventually, open_record

SECRET: Final = "whsec_c2hhcmVkIHdpdGggdGhlIHJlY2VpdmVy"
SENDER: Final = "minutebook@example.com"
INITIATOR: Final = "dana@example.com"
PUBLIC_URL: Final = "https://minutebook.example.com"


@dataclass
class World:
    """A record, and as many services as a test starts. `secrets` are read when one is."""

    record: Record
    exit: AsyncExitStack
    secrets: dict[str, str] = field(default_factory=dict)

    async def service(self, **settings: Any) -> tuple[Service, ListeningBus]:
        """Start an effects service of its own."""
        bus = ListeningBus()
        service = build(await self.record.tools(bus, secrets=self.secrets, public_url=PUBLIC_URL, **settings))
        await service.start()
        self.exit.push_async_callback(service.stop)
        return service, bus

    async def channel(self, channel_id: str, kind: str, url: str, *about: str, **declared: Any) -> None:
        """Declare a channel; its secrets are `<id>_url` and, of a webhook, `<id>_secret`."""
        self.secrets[f"{channel_id}_url"] = url
        if kind == "webhook":
            declared.setdefault("secret_ref", f"{channel_id}_secret")
            self.secrets.setdefault(f"{channel_id}_secret", SECRET)
        synced = ChannelSynced.model_validate(
            {
                "at": await self.record.store.now(),
                "channel_id": channel_id,
                "kind": kind,
                "url_ref": f"{channel_id}_url",
                "about": about,
                "hash": "0" * 64,
                "secret_ref": None,
                "roles": (),
                "definitions": (),
                "sender": SENDER if kind == "email" else None,
                "to": (),
                "holders": False,
                **declared,
            }
        )
        await self.record.plant(definition.CATEGORY, ids.channel(self.record.group, channel_id), synced)

    async def person(self, email: str, *roles: str, projects: Sequence[str] = ()) -> UUID:
        """A person who is there."""
        user_id = ids.user(self.record.group, email)
        registered = UserRegistered(
            at=await self.record.store.now(),
            email=email,
            name=email.partition("@")[0],
            kind="user",
            roles=roles,
            projects=tuple(projects),
        )
        await self.record.plant(identity.CATEGORY, user_id, registered)
        return user_id

    async def run(self) -> UUID:
        """A run that is running."""
        run_id, now = uuid4(), await self.record.store.now()
        created = RunCreated(
            at=now,
            definition_id="core-dev",
            hash="0" * 64,
            bundle=await self.record.keep({}),
            context={"secret plan": "buy the moon"},
            initiated_by=self.initiator,
            project_id="core",
            trigger=Trigger(kind="manual"),
        )
        await self.record.plant(run.CATEGORY, run_id, created, RunStarted(at=now))
        return run_id

    async def decide(self, run_id: UUID | None = None, *, title: str = "Is it right?", **opened: Any) -> UUID:
        """A decision that has just been opened."""
        run_id = run_id or await self.run()
        decision_id = ids.decision(run_id, "review", 1)
        event = DecisionOpened(
            at=await self.record.store.now(),
            run_id=run_id,
            definition_id="core-dev",
            step="review",
            title=title,
            round=1,
            role="product_owner",
            binding=RoleBinding(roles=("project_manager",)),
            outcomes=("approve", "reject"),
            artifact_step="draft",
            artifact=await self.record.keep({"body": "the artefact itself"}),
            initiated_by=self.initiator,
            project_id="core",
            **opened,
        )
        await self.record.plant(decision.CATEGORY, decision_id, event)
        return decision_id

    async def overdue(self, decision_id: UUID) -> None:
        """Nobody answered it: reminded, then escalated."""
        now = await self.record.store.now()
        await self.record.plant(
            decision.CATEGORY,
            decision_id,
            DecisionReminded(at=now),
            DecisionEscalated(at=now, role="lead", binding=RoleBinding(roles=("lead",))),
        )

    async def doubt(self, run_id: UUID | None = None) -> UUID:
        """An effect that may have been written."""
        run_id = run_id or await self.run()
        effect_id, claim, now = ids.effect(run_id, "pr"), uuid4(), await self.record.store.now()
        await self.record.plant(
            effect.CATEGORY,
            effect_id,
            EffectDeclared(
                at=now,
                run_id=run_id,
                step="open_pr",
                key="pr",
                system="github",
                tool="create_pull_request",
                arguments=await self.record.keep({"title": "buy the moon"}),
                owner=self.initiator,
            ),
            EffectPending(at=now, claim=claim, arm=0, over_at=now),
            EffectInDoubt(at=now, claim=claim, reason="no answer"),
        )
        return effect_id

    async def stop(self, run_id: UUID, event: RunSuspended | RunFailed) -> int:
        """A run that stopped; returns the version of that fact."""
        await self.record.plant(run.CATEGORY, run_id, event)
        return len(await self.record.types("run", run_id))

    @property
    def initiator(self) -> UserRef:
        return UserRef(id=ids.user(self.record.group, INITIATOR), email=INITIATOR)

    async def notices(self, *states: str) -> dict[UUID, notice.State]:
        """The notices that there are, in these states where some are named."""
        rows = await self.record.pool.fetch("select stream_id, state from notice_heads order by raised_at, stream_id")
        found = [row["stream_id"] for row in rows if not states or row["state"] in states]
        return {notice_id: await self.record.state(notice.CATEGORY, notice_id) for notice_id in found}

    async def send(self, bus: ListeningBus) -> None:
        """Tell of every notice that is due, as the bus would."""
        if due := await self.notices("due"):
            await bus.tell("effects-notices", "notice.raised", *due)

    async def tell(self, bus: ListeningBus, type_: str, *stream_ids: UUID, version: int = 1) -> None:
        """A fact, and the notices that are raised of it, reach the service."""
        await bus.tell("effects-notices", type_, *stream_ids, version=version)
        await self.send(bus)

    async def until(self, status: str, count: int = 1, *, within: timedelta = timedelta(seconds=15)) -> None:
        """Wait until so many notices stand so."""

        async def reached() -> bool:
            return len(await self.notices(status)) == count

        await eventually(reached, within=within)


@asynccontextmanager
async def open_world(database: Database) -> AsyncIterator[World]:
    """A world on an empty database."""
    async with open_record(database) as record, AsyncExitStack() as services:
        world = World(record, services)
        await world.person(INITIATOR, "developer")
        yield world

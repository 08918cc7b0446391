"""Operators for tests of effects in doubt: what they ask, and a server that knows probes and back-links."""

from datetime import timedelta
from typing import Any, Final, Literal
from uuid import UUID, uuid4

from contracts import ids
from contracts.base import Principal
from contracts.commands import Command, ProbeEffect, SettleEffect
from contracts.events.definition import BackLinkDeclaration, ProbeDeclaration, ServerSynced, ToolDeclaration
from contracts.replies import EffectChanged, Reply
from libs.domain import definition, effect
from minutebook.models.states import SettleVerdict
from tests.support.effects import TOOL, World
from tests.support.record import ListeningBus, eventually

LINK_TOOL: Final = "add_issue_comment"
PROBE_TOOL: Final = "list_pull_requests"
_FAR: Final = timedelta(days=30)


async def declare_server(
    world: World, *, absent: Literal["in_doubt", "not_landed"] = "in_doubt", linked: bool = False, **fields: Any
) -> None:
    """Declare the target with a probe, and where it is asked for a back-link."""
    probe = ProbeDeclaration(
        tool=PROBE_TOOL,
        args={"repo": "{{args.repo}}"},
        items=None,
        match={"head.ref": "{{args.head}}"},
        reference="html_url",
        absent=absent,
    )
    link = BackLinkDeclaration(
        tool=LINK_TOOL,
        args={"repo": "{{args.repo}}", "issue_number": "{{response.number}}", "body": "Opened by {{run_url}}."},
    )
    tool = ToolDeclaration(
        name=TOOL, reference="html_url", timeout_seconds=5, probe=probe, back_link=link if linked else None
    )
    synced = ServerSynced(
        at=await world.record.store.now(),
        server_id="github",
        url_ref="github_mcp_url",
        token_ref="github_token",
        tools=(tool,),
        hash="1" * 64,
        **fields,
    )
    await world.record.plant(definition.CATEGORY, ids.server(world.record.group, "github"), synced)


def operator(world: World, name: str = "ada@example.com") -> Principal:
    return Principal(
        kind="user",
        id=ids.user(world.record.group, name),
        name=name,
        tenant_group=world.record.group,
        tenant=world.record.tenant,
        roles=frozenset({"platform_admin"}),
    )


async def verdict(
    world: World, effect_id: UUID, said: SettleVerdict, *, by: Principal | None = None, **fields: Any
) -> SettleEffect:
    return SettleEffect(
        command_id=uuid4(),
        deadline=await world.record.store.now() + _FAR,
        principal=by or operator(world),
        effect_id=effect_id,
        verdict=said,
        arm=(await world.record.state(effect.CATEGORY, effect_id)).arm,
        **fields,
    )


async def look(world: World, effect_id: UUID) -> ProbeEffect:
    return ProbeEffect(
        command_id=uuid4(),
        deadline=await world.record.store.now() + _FAR,
        principal=operator(world),
        effect_id=effect_id,
    )


async def ask(bus: ListeningBus, command: Command) -> Reply[EffectChanged]:
    data = await bus.ask(command.subject, command.model_dump_json().encode(), headers={}, timeout=timedelta(seconds=30))
    return Reply[EffectChanged].model_validate_json(data)


async def until(world: World, bus: ListeningBus, effect_id: UUID, status: str) -> effect.State:
    """Let the clock wake the effect, until it stands so."""

    async def reached() -> bool:
        if (await world.record.state(effect.CATEGORY, effect_id)).status == status:
            return True
        await world.record.shift(timedelta(minutes=15))
        await bus.wake("effects", "effect", effect_id)
        return False

    await eventually(reached)
    return await world.record.state(effect.CATEGORY, effect_id)


__all__ = ["LINK_TOOL", "PROBE_TOOL", "ask", "declare_server", "look", "operator", "until", "verdict"]

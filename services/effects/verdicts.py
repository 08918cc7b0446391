"""What operators ask about an effect in doubt: that their verdict be recorded, or that the target be asked now."""

from typing import cast
from uuid import UUID

from contracts.base import JsonValue
from contracts.commands import ProbeEffect, SettleEffect
from contracts.errors import MinutebookError, Rejected
from contracts.replies import EffectChanged
from libs.canonical import blob
from libs.domain.effect import Command, Settle, State, must_be_settleable, over_no_earlier
from libs.eventstore.port import Store
from libs.owner import Item, Owner
from minutebook.models.states import EffectState
from services.effects.connectors import Connectors
from services.effects.ledger import Ledger, RunUrl, fold
from services.effects.links import back_link
from services.effects.probes import Probes
from services.effects.restores import lost_calls_over_at


class Verdicts:
    """Answers the asks of the category."""

    def __init__(
        self,
        *,
        owner: Owner[State, Command],
        store: Store,
        ledger: Ledger,
        probes: Probes,
        connectors: Connectors,
        run_url: RunUrl,
    ) -> None:
        self._owner = owner
        self._store = store
        self._ledger = ledger
        self._probes = probes
        self._connectors = connectors
        self._run_url = run_url

    async def settle(self, ask: SettleEffect) -> EffectChanged:
        """Record a verdict. The same command again is answered alike, another one is refused.

        Raises:
            contracts.errors.Rejected: as `libs.domain.effect.decide` says of a verdict.
        """
        effect = await self._effect(ask, ask.effect_id)
        now = await self._store.now()
        command = Settle(
            principal=ask.principal,
            command_id=ask.command_id,
            effect_id=ask.effect_id,
            verdict=ask.verdict,
            arm=ask.arm,
            reference=ask.reference,
            comment=ask.comment,
            not_before=await lost_calls_over_at(self._store, effect, now),
        )
        if ask.verdict == "landed":
            command = await self._landed(command, effect)
        item: Item[Command] = Item(
            stream_id=ask.effect_id,
            command=command,
            actor=ask.principal.actor,
            causation=ask.command_id,
            tenant_group=ask.principal.tenant_group,
            tenant=ask.principal.tenant,
            traceparent=ask.traceparent,
            release=True,
            deadline=ask.deadline,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            raise result
        await self._begin(ask.effect_id, result.state)
        return _changed(ask.effect_id, result.state, None)

    async def probe(self, ask: ProbeEffect) -> EffectChanged:
        """Ask the target now whether the write is there.

        Raises:
            contracts.errors.Rejected: as for a verdict; ``effect.no_probe`` (409).
        """
        effect = await self._effect(ask, ask.effect_id)
        settled = effect.settled
        if settled is not None and settled.command_id == ask.command_id:
            return _changed(ask.effect_id, effect, settled.comment)
        now = await self._store.now()
        not_before = await lost_calls_over_at(self._store, effect, now)
        must_be_settleable(ask.principal, over_no_earlier(effect, not_before), now)
        question = await self._probes.question(ask.principal.tenant_group, ask.effect_id, effect)
        if question is None:
            raise Rejected(
                "effect.no_probe",
                f"mcp/{effect.system}.yaml declares no probe for {effect.tool}; look at the target yourself, and "
                "settle it by what it shows",
                status=409,
            )
        state, said = await self._probes.look(question, ask.principal.actor, command_id=ask.command_id)
        await self._begin(ask.effect_id, state)
        return _changed(ask.effect_id, state, said)

    async def _effect(self, ask: SettleEffect | ProbeEffect, effect_id: UUID) -> State:
        load = await self._store.load("effect", {effect_id: 0})
        stream = load.streams[effect_id]
        if stream.tenant_group != ask.principal.tenant_group:
            raise Rejected("effect.not_found", "there is no such effect", status=404)
        return fold(stream)

    async def _landed(self, command: Settle, effect: State) -> Settle:
        """The verdict with what follows from a reference: what stands for the response, and the back-link.

        Later steps read the tool's response. A person knows the reference alone, so it stands where the tool says it.
        """
        assert effect.arguments is not None
        assert effect.run_id is not None
        tenant_group = command.principal.tenant_group
        server = await self._connectors.server(tenant_group, effect.system)
        tool = next((tool for tool in server.tools if tool.name == effect.tool), None) if server else None
        arguments = await self._connectors.arguments(tenant_group, effect.arguments)
        if tool is None or arguments is None:
            return command
        response = _standing_for(tool.reference, command.reference)
        link, linked = back_link(
            command.effect_id,
            effect,
            tool=tool,
            arguments=arguments,
            reference=command.reference,
            response=response,
            run_url=self._run_url(effect.run_id),
        )
        ref, content = blob(response)
        return command.model_copy(update={"response": ref, "back_link": link, "blobs": {ref.digest: content, **linked}})

    async def _begin(self, effect_id: UUID, state: State) -> None:
        """Armed again, it begins at once. Should that fail, its wake makes it good."""
        if state.status == "declared":
            await self._ledger.begin({effect_id: 0})


def _changed(effect_id: UUID, state: State, message: str | None) -> EffectChanged:
    assert state.run_id is not None
    return EffectChanged(
        effect_id=effect_id,
        run_id=state.run_id,
        state=cast(EffectState, state.status),
        reference=state.reference,
        message=message,
    )


def _standing_for(path: str | None, reference: str | None) -> JsonValue:
    """An object that has the reference where the tool's own response would."""
    if path is None or reference is None:
        return {}
    value: JsonValue = reference
    for segment in reversed(path.split(".")):
        value = {segment: value}
    return value

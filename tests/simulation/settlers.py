"""People who settle what is in doubt, by the target's own record: too early, twice, and two of them at once."""

import asyncio
from datetime import timedelta
from typing import Final
from uuid import UUID

from contracts.commands import ProbeEffect, SettleEffect
from contracts.replies import EffectChanged
from libs.ids import mint
from minutebook.models.states import SettleVerdict
from tests.simulation.people import ASK_TIMEOUT, LEADS, People

LATEST: Final = ASK_TIMEOUT + timedelta(seconds=4)
"""What is asked this long before a call is over comes before its end, however late it is heard."""


class Settlers:
    """Operators of the installation. They know no more of an effect than the target's record shows once it is over."""

    def __init__(self, people: People) -> None:
        self._people = people
        self._world = people.world
        self._busy: set[UUID] = set()

    async def settling(self) -> None:
        """Look at what may have been written, now and then before anybody can know; in the calm settle all of it."""
        world, people = self._world, self._people
        while True:
            await asyncio.sleep(world.random.uniform(0.2, 2.0 if people.calm else 8.0))
            if people.away or not world.shows_records:
                continue
            for effect_id, head in list(world.store.rows["effect"].items()):
                if head.state not in {"pending", "in_doubt"} or effect_id in self._busy:
                    continue
                if people.calm or world.hits(0.4):
                    self._busy.add(effect_id)
                    world.apart(self._turn_to(effect_id), "a verdict")

    async def _turn_to(self, effect_id: UUID) -> None:
        world = self._world
        effect = world.auditor.streams.get(effect_id)
        try:
            if effect is None:  # a restore was quicker
                return
            if effect.over_at is not None and world.now() < effect.over_at:
                if not self._people.calm and world.now() < effect.over_at - LATEST:
                    await self._guess(effect_id)
            elif effect.state == "in_doubt" and not self._people.calm and world.hits(0.3):
                await self._ask_target(effect_id)
            elif effect.state == "in_doubt":
                await self._judge(effect_id)
        finally:
            self._busy.discard(effect_id)

    async def _guess(self, effect_id: UUID) -> None:
        """Say what became of a call that is under way. Nobody can know."""
        verdict: SettleVerdict = self._world.random.choice(("landed", "not_landed", "try_again"))
        asked_at = self._world.loop.seconds
        await self._settle(effect_id, verdict, lead=0, while_seconds=asked_at)

    async def _judge(self, effect_id: UUID) -> None:
        """Say what the record shows, alone or two at once, who need not agree on what is to follow."""
        landed = self._world.auditor.effects.stands(effect_id)
        first: SettleVerdict = "landed" if landed else "try_again"
        verdicts = [first]
        if not self._people.calm and self._world.hits(0.3):
            verdicts.append("landed" if landed else self._world.random.choice(("not_landed", "try_again")))
        self._world.count("verdicts")
        await asyncio.gather(
            *(self._settle(effect_id, verdict, lead=lead) for lead, verdict in enumerate(verdicts)),
        )

    async def _settle(
        self, effect_id: UUID, verdict: SettleVerdict, *, lead: int, while_seconds: float | None = None
    ) -> None:
        """Send a verdict, and once more what was taken. Who looked at another doubt does not insist."""
        world = self._world
        effect = world.auditor.streams[effect_id]
        call = effect.pending
        command = SettleEffect(
            command_id=mint(),
            deadline=world.now(),
            principal=LEADS[lead],
            effect_id=effect_id,
            verdict=verdict,
            arm=effect.arm,
            reference=f"https://target/{effect.key}" if verdict == "landed" else None,
        )

        def worth() -> bool:
            return (
                world.auditor.streams.get(effect_id) is effect
                and effect.pending == call
                and while_seconds in {None, world.loop.seconds}
            )

        for _ in range(1 + world.hits(0.3)):
            answer = await self._people.send(command, EffectChanged, while_=worth)
            if not isinstance(answer, EffectChanged):
                return
            world.auditor.settled(effect_id, command.command_id, verdict)
            world.count(f"settled {verdict}")

    async def _ask_target(self, effect_id: UUID) -> None:
        """Let the product look at the target now."""
        command = ProbeEffect(command_id=mint(), deadline=self._world.now(), principal=LEADS[1], effect_id=effect_id)
        await self._people.send(command, EffectChanged)

"""Writes to the outside world."""

from collections.abc import AsyncIterator
from uuid import UUID

from minutebook.client.connection import Connection, once
from minutebook.models import EffectSettled, EffectView, SettleRequest
from minutebook.models.states import SettleVerdict


class EffectCalls(Connection):
    def effects(self, *, state: str | None = None) -> AsyncIterator[EffectView]:
        """Writes to the outside world of runs that the caller sees."""
        return self._pages(EffectView, "/effects", {"state": state})

    async def effect(self, effect_id: UUID | str) -> EffectView:
        return await self._call(EffectView, "GET", f"/effects/{effect_id}")

    async def settle_effect(
        self,
        effect_id: UUID | str,
        verdict: SettleVerdict,
        *,
        arm: int,
        reference: str | None = None,
        comment: str | None = None,
        idempotency_key: str | None = None,
    ) -> EffectSettled:
        """Say what became of a write in doubt. `landed` may name what the target calls the record.

        `arm` names the call that was looked for: read the effect, look at its target, and send the arm that was read.
        """
        request = SettleRequest(verdict=verdict, arm=arm, reference=reference, comment=comment)
        return await self._call(
            EffectSettled,
            "POST",
            f"/effects/{effect_id}/settle",
            json=request.model_dump(mode="json", exclude_none=True),
            headers=once(idempotency_key),
        )

    async def probe_effect(self, effect_id: UUID | str, *, idempotency_key: str | None = None) -> EffectSettled:
        """Ask the target now whether a write in doubt is there."""
        return await self._call(
            EffectSettled, "POST", f"/effects/{effect_id}/probe", json={}, headers=once(idempotency_key)
        )

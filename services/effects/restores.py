"""What a restored record cannot know of an effect: a call of the lost time that may still be under way."""

from datetime import datetime

from libs.domain.effect import UNANNOUNCED_OVER, State
from libs.eventstore.port import Store


async def lost_calls_over_at(store: Store, effect: State, now: datetime) -> datetime | None:
    """When every call of an effect is over that was announced in the time that was lost; None once that has passed.

    Its last call of the record may be long over, and in doubt or not yet reported. It may have been settled in the lost
    time all the same, and called once more.

    Raises:
        contracts.errors.Unavailable: the record does not answer.
    """
    era = await store.era()
    over_at = era.began_at + UNANNOUNCED_OVER
    if era.number == 1 or now >= over_at or effect.run_id is None:
        return None
    return over_at if await store.of_earlier_eras([effect.run_id]) else None

"""Takes what the bus delivers to the owner that it concerns."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.envelope import Address
from contracts.errors import MinutebookError
from services.scheduler.admissions import Admissions
from services.scheduler.schedules import Schedules


class Handlers:
    """One durable carries facts for two categories, another the wakes of both."""

    def __init__(self, admissions: Admissions, schedules: Schedules) -> None:
        self._admissions = admissions
        self._schedules = schedules

    async def on_facts(self, type_: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """A definition has another version, or a run asks for its concurrency key or gives it back."""
        owner = self._schedules if type_.startswith("definition.") else self._admissions
        return await owner.on_facts(type_, facts)

    async def on_wake(self, category: str, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """Lines have come to a slot, or what is known of a key is to be looked at again."""
        owner = self._schedules if category == "schedule" else self._admissions
        return await owner.on_wake(stream_ids)

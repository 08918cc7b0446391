"""What is sent of a notice: a title, a sentence, a link and the ids; never an artefact, a payload or a reason."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from contracts.base import Event, JsonObject
from contracts.events.decision import DecisionOpened
from contracts.events.effect import EffectDeclared
from libs.domain.notice import State
from libs.eventstore.port import Recorded, Store
from services.effects.notices.told import definition_of


@dataclass(frozen=True, slots=True)
class Letter:
    """One message, the same at every try. `data` is for programs."""

    notice_id: UUID
    about: str
    title: str
    text: str
    link: str | None
    raised_at: str
    data: JsonObject


class Letters:
    """Writes messages. `link` makes the address of a page of its path."""

    def __init__(self, store: Store, link: Callable[[str], str]) -> None:
        self._store = store
        self._link = link

    async def write(self, notice_id: UUID, notice: State, tenant_group: UUID) -> Letter:
        """The message of a notice.

        Raises:
            contracts.errors.Unavailable: the record does not answer.
        """
        assert notice.subject is not None
        assert notice.raised_at is not None
        path, data = await self._subject(notice, tenant_group)
        return Letter(
            notice_id=notice_id,
            about=notice.about,
            title=notice.title,
            text=notice.text,
            link=None if path is None else self._link(path),
            raised_at=notice.raised_at.isoformat(),
            data=data,
        )

    async def _subject(self, notice: State, tenant_group: UUID) -> tuple[str | None, JsonObject]:
        """The page of what a notice is about, and its ids and names. Only of what never changes of it."""
        assert notice.subject is not None
        category = notice.about.partition(".")[0]
        run: JsonObject = {} if notice.run_id is None else {"run_id": str(notice.run_id)}
        match category:
            case "decision":
                opened = await self._first(category, notice.subject, tenant_group)
                assert isinstance(opened, DecisionOpened)
                return f"/decisions/{notice.subject}", {
                    **run,
                    "decision_id": str(notice.subject),
                    "definition_id": opened.definition_id,
                    "step": opened.step,
                    "role": opened.role,
                    "escalated_to": opened.escalate_to if notice.about == "decision.escalated" else None,
                    "due_at": opened.due_at.isoformat() if opened.due_at else None,
                }
            case "effect":
                declared = await self._first(category, notice.subject, tenant_group)
                assert isinstance(declared, EffectDeclared)
                return f"/runs/{notice.run_id}", {
                    **run,
                    "effect_id": str(notice.subject),
                    "step": declared.step,
                    "system": declared.system,
                    "tool": declared.tool,
                }
            case "run":
                history = await self._history(category, notice.subject, tenant_group)
                return f"/runs/{notice.run_id}", {**run, "definition_id": definition_of(history)}
            case _:
                return None, {}

    async def _first(self, category: str, stream_id: UUID, tenant_group: UUID) -> Event:
        return (await self._history(category, stream_id, tenant_group))[0].event

    async def _history(self, category: str, stream_id: UUID, tenant_group: UUID) -> Sequence[Recorded]:
        found = await self._store.events(category, [stream_id], tenant_group=tenant_group)
        return found[stream_id]

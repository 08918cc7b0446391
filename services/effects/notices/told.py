"""What there is to tell: facts that notices are raised for, in the words in which people read them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from contracts.events.decision import DecisionEscalated, DecisionOpened, DecisionReminded
from contracts.events.effect import EffectDeclared, EffectInDoubt
from contracts.events.run import RunCreated, RunFailed, RunSuspended
from libs.domain.decision import CATEGORY as DECISION
from libs.domain.decision import State as DecisionState
from libs.eventstore.port import Recorded
from minutebook.models.states import NoticeAbout

TITLE_CHARS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Told:
    """One fact that people are told of, and what channels choose by. `number` tells it from others of its subject.

    `roles` are those that a decision is for; `decision` is where it stands, for finding who may answer it.
    """

    about: NoticeAbout
    subject: UUID
    number: int
    at: datetime
    tenant_group: UUID
    tenant: UUID
    traceparent: str | None
    run_id: UUID | None
    definition_id: str | None
    title: str
    text: str
    roles: frozenset[str] = frozenset()
    decision: DecisionState | None = None


def of_decision(history: Sequence[Recorded]) -> list[Told]:
    """What a decision's history has to tell."""
    if not history or not isinstance(history[0].event, DecisionOpened):
        return []
    opened, told = history[0].event, []
    state = DECISION.fold(tuple(recorded.event for recorded in history))
    due = f" It is due at {_moment(opened.due_at)}." if opened.due_at else ""
    where = f"step {opened.step} of {opened.definition_id}"
    for recorded in history:
        match recorded.event:
            case DecisionOpened():
                title, text = "To decide", f"{where} waits for the role {opened.role}.{due}"
            case DecisionReminded():
                title, text = "Still to decide", f"{where} waits for the role {opened.role}, and nobody has answered."
            case DecisionEscalated(role=role):
                title, text = "Escalated", f"{where} was not answered in time; the role {role} may answer it, too."
            case _:
                continue
        roles = {opened.role, *((recorded.event.role,) if isinstance(recorded.event, DecisionEscalated) else ())}
        told.append(
            _told(
                recorded,
                run_id=opened.run_id,
                definition_id=opened.definition_id,
                title=f"{title}: {opened.question or opened.title}",
                text=text[0].upper() + text[1:],
                roles=frozenset(roles),
                decision=state,
            )
        )
    return told


def of_effect(history: Sequence[Recorded], run: Sequence[Recorded]) -> list[Told]:
    """The doubts that an effect's history has to tell of."""
    if not history or not isinstance(history[0].event, EffectDeclared):
        return []
    declared, definition_id = history[0].event, definition_of(run)
    what = f"{declared.system}.{declared.tool}"
    return [
        _told(
            recorded,
            run_id=declared.run_id,
            definition_id=definition_id,
            title=f"In doubt: {what}",
            text=f"{what} may have been written by step {declared.step} of {definition_id or 'a run'}, and that cannot "
            "be known from here. Look at the target, then say what became of it.",
        )
        for recorded in history
        if isinstance(recorded.event, EffectInDoubt)
    ]


def of_run(history: Sequence[Recorded]) -> list[Told]:
    """Where a run stopped by itself.

    One that a person suspended tells nobody anything new, and one in doubt has a notice of its effect's.
    """
    definition_id = definition_of(history)
    told = []
    for recorded in history:
        match recorded.event:
            case RunSuspended(by=None, effect_id=None, step=step):
                title, done = "Stuck", "stopped and waits for somebody to retry, resume or cancel it"
            case RunFailed(step=step):
                title, done = "Failed", "failed"
            case _:
                continue
        at = f" at step {step}" if step else ""
        failure = getattr(recorded.event, "failure_class", None)
        why = f" ({failure})" if failure else ""
        told.append(
            _told(
                recorded,
                run_id=recorded.stream_id,
                definition_id=definition_id,
                title=f"{title}: {definition_id or 'a run'}",
                text=f"A run of {definition_id or 'a workflow'} {done}{at}{why}.",
            )
        )
    return told


def of_source(
    source_id: str,
    *,
    subject: UUID,
    number: int,
    at: datetime,
    tenant_group: UUID,
    tenant: UUID,
    reason: str,
    refused: int,
    since: datetime,
) -> Told:
    """A source whose deliveries are refused again and again."""
    return Told(
        about="source.failing",
        subject=subject,
        number=number,
        at=at,
        tenant_group=tenant_group,
        tenant=tenant,
        traceparent=None,
        run_id=None,
        definition_id=None,
        title=_line(f"Failing source: {source_id}"),
        text=f"{refused} deliveries of {source_id} were refused since {_moment(since)}: {_line(reason)}.",
    )


def definition_of(run: Iterable[Recorded]) -> str | None:
    """The workflow of a run's history."""
    return next((one.event.definition_id for one in run if isinstance(one.event, RunCreated)), None)


def _told(
    recorded: Recorded,
    *,
    run_id: UUID,
    definition_id: str | None,
    title: str,
    text: str,
    roles: frozenset[str] = frozenset(),
    decision: DecisionState | None = None,
) -> Told:
    metadata = recorded.metadata
    return Told(
        about=recorded.type,  # type: ignore[arg-type]  # the callers tell of these types alone
        subject=recorded.stream_id,
        number=recorded.version,
        at=recorded.event.at,
        tenant_group=metadata.tenant_group,
        tenant=metadata.tenant,
        traceparent=metadata.traceparent,
        run_id=run_id,
        definition_id=definition_id,
        title=_line(title),
        text=text,
        roles=roles,
        decision=decision,
    )


def _line(text: str) -> str:
    """Text of one printable line, of bounded length."""
    plain = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return plain if len(plain) <= TITLE_CHARS_MAX else plain[: TITLE_CHARS_MAX - 1] + "…"


def _moment(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")

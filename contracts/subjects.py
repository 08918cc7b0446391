"""Subjects, streams and durables: declared here, applied by `migrate`; services only bind to them."""

from dataclasses import dataclass
from datetime import timedelta

from contracts.envelope import Owner

OWNER_OF: dict[str, Owner] = {
    "identity": "api",
    "definition": "planner",
    "run": "planner",
    "attempt": "runner",
    "decision": "decision",
    "inbound": "ingest",
    "wait": "ingest",
    "effect": "effects",
    "notice": "effects",
    "schedule": "scheduler",
    "admission": "scheduler",
}


def history(event_type: str) -> str:
    """`run.started` travels as `history.run.started`."""
    return f"history.{event_type}"


def work(executor: str, queue: str) -> str:
    return f"work.{executor}.{queue}"


def wake(service: Owner) -> str:
    return f"wake.{service}"


def inbound(source: str) -> str:
    return f"inbound.{source}"


@dataclass(frozen=True, slots=True)
class StreamSpec:
    """A JetStream stream. Limits are small on purpose: what it loses, the sweep finds again."""

    name: str
    subjects: tuple[str, ...]
    max_age: timedelta
    max_bytes: int
    dedupe_window: timedelta = timedelta(minutes=2)


@dataclass(frozen=True, slots=True)
class DurableSpec:
    """A durable consumer. `max_deliver` is unlimited: a message ends by ack or term, never by a count.

    `ack_wait` is how long what a killed process had in hand stands still. It may be short, since a process that lives
    says so of what takes longer, and since what is handled twice is harmless.
    """

    name: str
    stream: str
    subjects: tuple[str, ...]
    service: Owner
    ack_wait: timedelta = timedelta(seconds=5)
    max_ack_pending: int = 2_000


STREAMS: tuple[StreamSpec, ...] = (
    StreamSpec("HISTORY", ("history.>",), timedelta(hours=1), 1 << 30),
    StreamSpec("WORK", ("work.>",), timedelta(hours=1), 1 << 28),
    StreamSpec("WAKE", ("wake.>",), timedelta(minutes=10), 1 << 28),
    StreamSpec("INBOUND", ("inbound.>",), timedelta(hours=1), 1 << 28),
)

DURABLES: tuple[DurableSpec, ...] = (
    DurableSpec(
        "planner-history",
        "HISTORY",
        (
            "history.run.created",
            "history.attempt.succeeded",
            "history.attempt.failed",
            "history.decision.answered",
            "history.effect.succeeded",
            "history.effect.failed",
            "history.effect.in_doubt",
            "history.effect.settled",
            "history.wait.matched",
            "history.admission.granted",
            "history.admission.queued",
            "history.admission.superseded",
            "history.admission.refused",
        ),
        "planner",
    ),
    DurableSpec("planner-wake", "WAKE", ("wake.planner",), "planner"),
    DurableSpec("runner-work", "WORK", ("work.>",), "runner"),
    DurableSpec(
        "runner-history",
        "HISTORY",
        ("history.run.cancelled", "history.run.failed", "history.run.step_cancelled"),
        "runner",
    ),
    DurableSpec("runner-wake", "WAKE", ("wake.runner",), "runner"),
    DurableSpec(
        "decision-history",
        "HISTORY",
        (
            "history.decision.opened",
            "history.decision.escalated",
            "history.identity.user_deactivated",
            "history.run.cancelled",
            "history.run.failed",
            "history.run.step_failed",
            "history.run.step_skipped",
        ),
        "decision",
    ),
    DurableSpec("decision-wake", "WAKE", ("wake.decision",), "decision"),
    DurableSpec(
        "effects-history",
        "HISTORY",
        (
            "history.effect.declared",
            "history.run.step_writing",
            "history.run.resumed",
            "history.run.cancelled",
        ),
        "effects",
    ),
    DurableSpec(
        "effects-notices",
        "HISTORY",
        (
            "history.decision.opened",
            "history.decision.reminded",
            "history.decision.escalated",
            "history.effect.in_doubt",
            "history.run.suspended",
            "history.run.failed",
            "history.notice.raised",
            "history.notice.rearmed",
        ),
        "effects",
    ),
    DurableSpec("effects-wake", "WAKE", ("wake.effects",), "effects"),
    DurableSpec("ingest-inbound", "INBOUND", ("inbound.>",), "ingest"),
    DurableSpec("ingest-wake", "WAKE", ("wake.ingest",), "ingest"),
    DurableSpec(
        "ingest-history",
        "HISTORY",
        (
            "history.wait.opened",
            "history.run.step_failed",
            "history.run.cancelled",
            "history.run.failed",
        ),
        "ingest",
    ),
    DurableSpec(
        "scheduler-history",
        "HISTORY",
        (
            "history.definition.synced",
            "history.definition.promoted",
            "history.run.admission_requested",
            "history.run.admission_returned",
        ),
        "scheduler",
    ),
    DurableSpec("scheduler-wake", "WAKE", ("wake.scheduler",), "scheduler"),
)

OVERHEARD: frozenset[str] = frozenset(
    history(type_)
    for type_ in (
        "run.completed",
        "run.cancelled",
        "run.parked",
        "run.suspended",
        "run.failed",
    )
)
"""What is listened to beside the durables, by the door for callers who wait."""

HEARD: frozenset[str] = OVERHEARD | {
    subject for durable in DURABLES if durable.stream == "HISTORY" for subject in durable.subjects
}
"""Facts that somebody hears of. The others are read in the history by whoever wants them, and are not published."""

ENVELOPE_BYTES_MAX = 512 * 1024
DEFINITIONS_BYTES_MAX = 448 * 1024

"""Every edge between states as `docs/lifecycle.md` draws it, and which fact leads where.

Written down here once more, on purpose: the auditor shares nothing with the code that it judges.
"""

from collections.abc import Mapping
from typing import Any, Final

Edges = Mapping[str, frozenset[str]]


def _edges(drawn: str) -> Edges:
    edges: dict[str, set[str]] = {}
    for line in drawn.split("\n"):
        start, arrow, ends = line.partition("->")
        if arrow:
            edges.setdefault(start.strip(), set()).update(ends.split())
    return {start: frozenset(ends) for start, ends in edges.items()}


RUN: Final = _edges("""
    - -> created
    created -> cancelled running superseded suspended
    running -> cancelled completed failed suspended waiting_decision waiting_event waiting_timer
    waiting_decision -> cancelled running suspended
    waiting_event -> cancelled running suspended
    waiting_timer -> cancelled running suspended
    suspended -> cancelled running
    failed -> running
""")

STEP: Final = _edges("""
    pending -> delayed failed queued skipped succeeded waiting writing
    delayed -> cancelled failed queued skipped succeeded waiting writing
    queued -> cancelled failed queued retrying succeeded
    waiting -> cancelled failed pending queued skipped succeeded waiting writing
    writing -> cancelled failed pending retrying succeeded writing
    retrying -> cancelled failed pending queued writing
    succeeded -> pending
    failed -> pending queued succeeded waiting writing
    cancelled -> pending
    skipped -> pending
""")

ATTEMPT: Final = _edges("""
    - -> queued
    queued -> cancelled failed running
    running -> cancelled failed queued succeeded
""")

DECISION: Final = _edges("""
    - -> open
    open -> answered withdrawn
""")

EFFECT: Final = _edges("""
    - -> declared
    declared -> cancelled failed in_doubt pending
    pending -> failed in_doubt succeeded
    failed -> declared
    in_doubt -> declared failed succeeded
""")

INBOUND: Final = _edges("""
    - -> received
    received -> routed
""")

WAIT: Final = _edges("""
    - -> opening
    opening -> closed matched open
    open -> closed matched
""")

ADMISSION: Final = _edges("""
    - -> busy
    busy -> idle
    idle -> busy
""")

EDGES: Final[Mapping[str, Edges]] = {
    "run": RUN,
    "attempt": ATTEMPT,
    "decision": DECISION,
    "effect": EFFECT,
    "inbound": INBOUND,
    "wait": WAIT,
    "admission": ADMISSION,
}

_STREAM_AFTER: Final[Mapping[str, str]] = {
    "run.created": "created",
    "run.started": "running",
    "run.unparked": "running",
    "run.resumed": "running",
    "run.suspended": "suspended",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "run.superseded": "superseded",
    "attempt.queued": "queued",
    "attempt.started": "running",
    "attempt.lease_lost": "queued",
    "attempt.succeeded": "succeeded",
    "attempt.failed": "failed",
    "attempt.cancelled": "cancelled",
    "decision.opened": "open",
    "decision.answered": "answered",
    "decision.withdrawn": "withdrawn",
    "effect.declared": "declared",
    "effect.pending": "pending",
    "effect.succeeded": "succeeded",
    "effect.failed": "failed",
    "effect.in_doubt": "in_doubt",
    "effect.rearmed": "declared",
    "effect.cancelled": "cancelled",
    "inbound.received": "received",
    "inbound.routed": "routed",
    "wait.opened": "opening",
    "wait.looked_back": "open",
    "wait.matched": "matched",
    "wait.closed": "closed",
}

_AFTER_VERDICT: Final = {"landed": "succeeded", "not_landed": "failed", "try_again": "declared"}

STEP_AFTER: Final[Mapping[str, str]] = {
    "run.step_queued": "queued",
    "run.branches_entered": "queued",
    "run.items_entered": "queued",
    "run.step_delayed": "delayed",
    "run.step_waiting": "waiting",
    "run.step_escalated": "waiting",
    "run.event_awaited": "waiting",
    "run.manual_opened": "waiting",
    "run.step_writing": "writing",
    "run.step_succeeded": "succeeded",
    "run.step_retrying": "retrying",
    "run.step_failed": "failed",
    "run.step_cancelled": "cancelled",
    "run.step_skipped": "skipped",
    "run.step_inherited": "succeeded",
}

STEP_OPEN: Final = frozenset({"delayed", "queued", "waiting", "writing", "retrying"})
RUN_ACTIVE: Final = frozenset({"created", "running", "waiting_decision", "waiting_event", "waiting_timer"})
ASKING: Final = {"decision": frozenset({"open"}), "wait": frozenset({"opening", "open"})}
EFFECT_NOT_DONE: Final = frozenset({"failed", "cancelled"})
RUN_OVER: Final = frozenset({"completed", "failed", "cancelled", "superseded"})


def state_after(type_: str, event: Any) -> str | None:
    """The state of the stream after this fact; None when the fact changes none."""
    if type_ == "run.parked":
        return f"waiting_{event.on}"
    if type_ == "effect.settled":
        return _AFTER_VERDICT[event.verdict]
    return _STREAM_AFTER.get(type_)

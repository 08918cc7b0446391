"""Every edge between states, in one table. `docs/lifecycle.md` draws it; a test holds both together.

`absent` is the state before the first fact. An edge that is not here does not happen.
"""

from collections.abc import Mapping
from typing import Final

Edges = Mapping[str, frozenset[str]]


def _edges(**table: str) -> Edges:
    return {state: frozenset(targets.split()) for state, targets in table.items()}


RUN: Final = _edges(
    absent="created",
    created="running cancelled suspended superseded",
    running="waiting_decision waiting_event waiting_timer completed failed cancelled suspended",
    waiting_decision="running cancelled suspended",
    waiting_event="running cancelled suspended",
    waiting_timer="running cancelled suspended",
    suspended="running cancelled",
    failed="running",
    completed="",
    cancelled="",
    superseded="",
)

STEP: Final = _edges(
    pending="delayed queued waiting writing succeeded failed skipped",
    delayed="queued waiting writing succeeded failed cancelled skipped",
    queued="queued succeeded retrying failed cancelled",
    waiting="waiting queued writing succeeded failed cancelled skipped pending",
    writing="writing succeeded retrying failed cancelled pending",
    retrying="queued writing failed cancelled pending",
    succeeded="pending",
    failed="queued waiting writing succeeded pending",
    cancelled="pending",
    skipped="pending",
)

ATTEMPT: Final = _edges(
    absent="queued",
    queued="running failed cancelled",
    running="queued succeeded failed cancelled",
    succeeded="",
    failed="",
    cancelled="",
)

DECISION: Final = _edges(absent="open", open="answered withdrawn", answered="", withdrawn="")

EFFECT: Final = _edges(
    absent="declared",
    declared="pending failed cancelled in_doubt",
    pending="succeeded failed in_doubt",
    failed="declared",
    in_doubt="succeeded declared failed",
    succeeded="",
    cancelled="",
)

INBOUND: Final = _edges(absent="received", received="routed", routed="")

WAIT: Final = _edges(absent="opening", opening="open matched closed", open="matched closed", matched="", closed="")

SCHEDULE: Final = _edges(absent="active", active="paused retired", paused="active retired", retired="active")

ADMISSION: Final = _edges(absent="busy", busy="idle", idle="busy")

DEFINITION: Final = _edges(absent="active", active="")

IDENTITY: Final = _edges(absent="active", active="inactive", inactive="active")
"""What was ended stays so, but for a grant, which may be given again."""

NOTICE: Final = _edges(
    absent="due",
    due="sending failed",
    sending="sent due failed in_doubt",
    failed="due",
    in_doubt="due",
    sent="",
)

LIFECYCLES: Final[Mapping[str, Edges]] = {
    "run": RUN,
    "step": STEP,
    "attempt": ATTEMPT,
    "decision": DECISION,
    "effect": EFFECT,
    "inbound": INBOUND,
    "wait": WAIT,
    "schedule": SCHEDULE,
    "admission": ADMISSION,
    "definition": DEFINITION,
    "identity": IDENTITY,
    "notice": NOTICE,
}

RUN_OPEN: Final = frozenset({"created", "running", "waiting_decision", "waiting_event", "waiting_timer", "suspended"})
RUN_ACTIVE: Final = RUN_OPEN - {"suspended"}
"""States in which work may be claimed and written: open and not suspended."""
RUN_OVER: Final = frozenset(RUN) - RUN_OPEN - {"absent"}
"""States in which a run works no more, unless it failed and is made to go on."""


def terminal(edges: Edges) -> frozenset[str]:
    """The states that nothing follows."""
    return frozenset(state for state, targets in edges.items() if not targets)

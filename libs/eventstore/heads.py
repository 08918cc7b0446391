"""What stands in each category's head row beside the columns that all have: declared once, for SQL and checks alike."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.errors import Broken

LOCK_ORDER: Final = (
    "identity",
    "definition",
    "schedule",
    "inbound",
    "run",
    "admission",
    "wait",
    "attempt",
    "decision",
    "effect",
    "notice",
)
"""Every statement locks head rows category by category in this order, and by stream id in each: no two can deadlock."""

COMMON: Final = ("stream_id", "tenant_group", "tenant", "version", "appended", "state", "digest", "wake_at")
OPERATIONAL: Final[Mapping[str, str]] = {"claim": "uuid", "lease_until": "timestamptz"}
"""Not derived from events: changed under the gate or by a claim, never verified."""

GATE: Final[Mapping[str, str]] = {"gate": "uuid"}
"""Carries into an upsert the claim that an append expects."""


@dataclass(frozen=True, slots=True)
class Heads:
    """A category's head table. `columns` are the derived ones, name → type; `null` says which may be null."""

    category: str
    columns: Mapping[str, str]
    nullable: frozenset[str] = frozenset()
    claimable: bool = False

    @property
    def table(self) -> str:
        return f"{self.category}_heads"

    def check(self, columns: Mapping[str, Any]) -> None:
        """Refuse derived columns that are not exactly the declared ones.

        Raises:
            contracts.errors.Broken: names the columns that are missing or unknown.
        """
        if columns.keys() != self.columns.keys():
            missing = ", ".join(sorted(self.columns.keys() - columns.keys())) or "none"
            unknown = ", ".join(sorted(columns.keys() - self.columns.keys())) or "none"
            raise Broken(
                "eventstore.columns",
                f"a head of {self.category} has other columns: missing {missing}, unknown {unknown};"
                " the category's `columns` and libs/eventstore/heads.py must agree",
            )


def _heads(category: str, *, claimable: bool = False, **columns: str) -> Heads:
    """Declare a table; `?` after a type says that the column may be null."""
    return Heads(
        category=category,
        columns={name: kind.rstrip("?") for name, kind in columns.items()},
        nullable=frozenset(name for name, kind in columns.items() if kind.endswith("?")),
        claimable=claimable,
    )


HEADS: Final[Mapping[str, Heads]] = {
    heads.category: heads
    for heads in (
        _heads("identity", kind="text", name="text", owner="uuid?", holds="text[]?"),
        _heads(
            "definition",
            kind="text",
            name="text",
            hash="text",
            enabled="boolean",
            event_sources="text[]",
            schedules="int",
        ),
        _heads(
            "schedule",
            definition_id="text",
            line="text",
            timezone="text",
            next_at="timestamptz?",
            last_run="uuid?",
        ),
        _heads("admission", definition_id="text", key="text", holders="int", queued="int"),
        _heads(
            "inbound",
            source="text",
            external_id="text",
            event="text",
            received_at="timestamptz",
            body_sha256="text",
            unmatched="text?",
        ),
        _heads(
            "run",
            definition_id="text",
            hash="text",
            initiator="uuid",
            project_id="text?",
            stage="text?",
            outcome="text?",
            reason="text?",
            created_at="timestamptz",
            finished_at="timestamptz?",
            cost_microdollars="bigint",
            variant="text?",
            parent="uuid?",
            search="text[]",
            tasks="int",
        ),
        _heads("wait", run_id="uuid", step="text", source="text", event="text?", probe="text", inbound_id="uuid?"),
        _heads(
            "attempt",
            claimable=True,
            run_id="uuid",
            step="text",
            round="int",
            number="int",
            cost_microdollars="bigint",
            failure_class="text?",
        ),
        _heads(
            "decision",
            run_id="uuid",
            step="text",
            role="text",
            outcome="text?",
            opened_at="timestamptz",
            answered_at="timestamptz?",
            definition_id="text",
            project_id="text?",
            initiator="uuid",
            due_at="timestamptz?",
            escalated_to="text?",
        ),
        _heads(
            "effect",
            claimable=True,
            run_id="uuid",
            step="text",
            key="text",
            system="text",
            tool="text",
            reference="text?",
            kind="text",
        ),
        _heads(
            "notice",
            claimable=True,
            run_id="uuid?",
            about="text",
            subject="uuid",
            channel="text",
            tries="int",
            raised_at="timestamptz",
        ),
    )
}


def heads_of(category: str) -> Heads:
    """Return a category's declaration.

    Raises:
        contracts.errors.Broken: there is no such category.
    """
    try:
        return HEADS[category]
    except KeyError:
        raise Broken("eventstore.category", f"there is no stream category {category!r}") from None


_INT_BITS: Final = {"int": 31, "bigint": 63}
_PYTHON: Final[Mapping[str, type | tuple[type, ...]]] = {
    "text": str,
    "uuid": UUID,
    "int": int,
    "bigint": int,
    "boolean": bool,
    "timestamptz": datetime,
    "text[]": (list, tuple, set, frozenset),
}


def check_values(heads: Heads, columns: Mapping[str, Any]) -> None:
    """Refuse what PostgreSQL would refuse, for the adapter that has none.

    Raises:
        contracts.errors.Broken: names the column whose value does not fit.
    """
    for name, kind in heads.columns.items():
        value = columns[name]
        fits = isinstance(value, _PYTHON[kind]) if value is not None else name in heads.nullable
        if fits and isinstance(value, str):
            fits = "\x00" not in value
        if fits and isinstance(value, int) and kind in _INT_BITS:
            fits = -(1 << _INT_BITS[kind]) <= value < 1 << _INT_BITS[kind]
        if not fits:
            raise Broken("eventstore.value", f"the value of {heads.table}.{name} is no {kind}; nothing was written")

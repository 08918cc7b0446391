"""Conditions of a query with their arguments: texts are ours alone, values are parameters."""

from dataclasses import dataclass, field
from typing import Any

from contracts.base import Principal
from libs.domain.access import Member, is_administrator


@dataclass(slots=True)
class Where:
    """Conditions with their arguments. Texts are ours alone; what callers send goes into `arguments`."""

    arguments: list[Any] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    def add(self, condition: str, *arguments: Any) -> None:
        """Add a condition with one `{}` per argument."""
        places = []
        for argument in arguments:
            self.arguments.append(argument)
            places.append(f"${len(self.arguments)}")
        self.conditions.append(condition.format(*places))

    def place(self, argument: Any) -> str:
        self.arguments.append(argument)
        return f"${len(self.arguments)}"

    def visible(self, caller: Principal, table: str) -> None:
        """What `libs.domain.access.sees_run` says, as SQL over a head row with an initiator and a project."""
        self._seen_by(caller, (caller,), table)

    def visible_to_decide(self, caller: Principal, table: str) -> None:
        """What `libs.domain.access.sees_to_decide` says, as SQL over a head row with an initiator and a project."""
        self._seen_by(caller, (caller, *caller.acts_for), table)

    def _seen_by(self, caller: Principal, members: tuple[Member, ...], table: str) -> None:
        self.add(f"{table}.tenant_group = {{}}", caller.tenant_group)
        if not any(map(is_administrator, members)):
            self.add(
                f"({table}.initiator = any({{}}) or {table}.project_id = any({{}}))",
                [member.id for member in members],
                sorted({project for member in members for project in member.projects}),
            )

    def __str__(self) -> str:
        return " and ".join(self.conditions)

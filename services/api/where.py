"""Conditions of a query with their arguments: texts are ours alone, values are parameters."""

from dataclasses import dataclass, field
from typing import Any

from contracts.base import Principal
from libs.domain.access import is_administrator


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
        self.add(f"{table}.tenant_group = {{}}", caller.tenant_group)
        if not is_administrator(caller):
            self.add(
                f"({table}.initiator = {{}} or {table}.project_id = any({{}}))", caller.id, sorted(caller.projects)
            )

    def __str__(self) -> str:
        return " and ".join(self.conditions)

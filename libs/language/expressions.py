"""Gate expressions: `findings.blocking == 0 and not exists(steps.design.veto)`.

Nothing is guessed: a missing path or an odd type is an error, never false. `libs.language.syntax` has the grammar.
"""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from libs.language.paths import MISSING, Missing, resolve
from libs.language.syntax import (
    Both,
    Compare,
    Constant,
    Constants,
    Either,
    Exists,
    Expression,
    ExpressionError,
    Length,
    Not,
    Path,
    Term,
    parse,
)

ROOTS: Final = ("steps", "context", "state")
"""First segments of paths that do not lead into the step's own output."""

_ORDERINGS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class GateError(Rejected):
    """The expression cannot be judged on these values: ``gate.unset`` names the path, ``gate.type`` the misfit."""


@dataclass(frozen=True, slots=True)
class _Scope:
    output: JsonValue
    roots: Mapping[str, JsonValue]

    def find(self, path: str) -> JsonValue | Missing:
        root, _, rest = path.partition(".")
        if root not in self.roots:
            return resolve(path, self.output)
        return resolve(rest, self.roots[root]) if rest else self.roots[root]

    def value(self, path: str) -> JsonValue:
        found = self.find(path)
        if found is MISSING:
            raise GateError("gate.unset", f"the gate reads `{path}`, which is not there; guard it with exists({path})")
        return found


def evaluate(
    expression: Expression,
    *,
    output: JsonValue,
    steps: Mapping[str, JsonValue],
    context: JsonObject,
    state: JsonObject,
) -> bool:
    """Judge an expression. Bare paths read `output`; `steps` maps a step's key to what `steps.<key>` reads.

    Raises:
        GateError: a path is missing outside of exists(), or a value has the wrong type; it says which.
    """
    scope = _Scope(output, {"steps": dict(steps), "context": context, "state": state})
    return _truth(_value(expression.term, scope), "the expression")


def _value(term: Term, scope: _Scope) -> JsonValue:
    match term:
        case Constant(value):
            return value
        case Constants(items):
            return [item.value for item in items]
        case Path(text):
            return scope.value(text)
        case Exists(path):
            found = scope.find(path.text)
            return found is not MISSING and found is not None
        case Length(path):
            return _length(path, scope.value(path.text))
        case Not(inner):
            return not _truth(_value(inner, scope), "what follows `not`")
        case Both(terms):
            return all(_truth(_value(side, scope), "a side of `and`") for side in terms)
        case Either(terms):
            return any(_truth(_value(side, scope), "a side of `or`") for side in terms)
        case Compare(symbol, left, right):
            return _compare(symbol, _value(left, scope), _value(right, scope))


def _truth(value: JsonValue, what: str) -> bool:
    if isinstance(value, bool):
        return value
    raise GateError("gate.type", f"{what} is {_kind(value)}, not true or false; compare it with something")


def _length(path: Path, value: JsonValue) -> int:
    if isinstance(value, (str, list, dict)):
        return len(value)
    raise GateError("gate.type", f"len({path.text}): it is {_kind(value)}; lists, objects and text have a length")


def _compare(symbol: str, left: JsonValue, right: JsonValue) -> bool:
    match symbol:
        case "==":
            return _equal(left, right)
        case "!=":
            return not _equal(left, right)
        case "in":
            return _within(left, right)
        case "not in":
            return not _within(left, right)
        case _:
            kinds = {_kind(left), _kind(right)}
            if kinds not in ({"a number"}, {"text"}):
                raise GateError("gate.type", f"`{symbol}` cannot order {_kind(left)} and {_kind(right)}")
            return _ORDERINGS[symbol](left, right)


def _equal(left: JsonValue, right: JsonValue) -> bool:
    """Equality of scalars of one kind. Anything may be compared with null."""
    if left is None or right is None:
        return left is right
    kinds = {_kind(left), _kind(right)}
    if len(kinds) > 1 or kinds & {"a list", "an object"}:
        raise GateError("gate.type", f"{_kind(left)} cannot be compared with {_kind(right)}")
    return left == right


def _within(left: JsonValue, right: JsonValue) -> bool:
    if isinstance(right, list):
        verdicts = [_equal(left, item) for item in right]  # every element's type is checked, also after a hit
        return any(verdicts)
    raise GateError("gate.type", f"`in` needs a list on its right, not {_kind(right)}")


def _kind(value: JsonValue) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "an object"


__all__ = ["ROOTS", "Expression", "ExpressionError", "GateError", "evaluate", "parse"]

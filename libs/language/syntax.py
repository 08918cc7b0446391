"""Syntax of gate expressions: text → tree. `libs.language.expressions` judges the tree.

    or      := and ("or" and)*
    and     := not ("and" not)*
    not     := "not" not | comparison
    compare := operand (("==" | "!=" | "<" | "<=" | ">" | ">=" | "in" | "not" "in") operand)?
    operand := literal | path | "exists" "(" path ")" | "len" "(" path ")" | "[" literals "]" | "(" or ")"

There is no arithmetic, no chaining (`a < b < c`), no call but the two, and no name that is not a path: nothing of
Python can be reached. A path is bare (the step's own output) or starts with `steps.`, `context.` or `state.`.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Literal

EXPRESSION_CHARS_MAX: Final = 1_000
DEPTH_MAX: Final = 20
NUMBER_CHARS_MAX: Final = 20

Comparator = Literal["==", "!=", "<", "<=", ">", ">=", "in", "not in"]


class ExpressionError(ValueError):
    """The text is not an expression. `position` counts characters from 1."""

    def __init__(self, position: int, message: str) -> None:
        super().__init__(f"{message} at character {position}")
        self.position = position
        self.message = message


@dataclass(frozen=True, slots=True)
class Constant:
    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Constants:
    items: tuple[Constant, ...]


@dataclass(frozen=True, slots=True)
class Path:
    text: str


@dataclass(frozen=True, slots=True)
class Exists:
    path: Path


@dataclass(frozen=True, slots=True)
class Length:
    path: Path


@dataclass(frozen=True, slots=True)
class Compare:
    operator: Comparator
    left: "Term"
    right: "Term"


@dataclass(frozen=True, slots=True)
class Not:
    term: "Term"


@dataclass(frozen=True, slots=True)
class Both:
    """`and`: a term is looked at only when those before it hold."""

    terms: tuple["Term", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """`or`: a term is looked at only when none before it holds."""

    terms: tuple["Term", ...]


Term = Constant | Constants | Path | Exists | Length | Compare | Not | Both | Either


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression. `text` is what the author wrote."""

    text: str
    term: Term

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path in it, in reading order."""
        return tuple(_paths(self.term))


def _paths(term: Term) -> Iterator[str]:
    match term:
        case Path(text):
            yield text
        case Exists(path) | Length(path):
            yield path.text
        case Not(inner):
            yield from _paths(inner)
        case Compare(_, left, right):
            yield from _paths(left)
            yield from _paths(right)
        case Both(terms) | Either(terms):
            for inner in terms:
                yield from _paths(inner)
        case Constant() | Constants():
            pass


def parse(text: str) -> Expression:
    """Parse an expression.

    Raises:
        ExpressionError: with the position and what was expected there.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        raise ExpressionError(EXPRESSION_CHARS_MAX + 1, f"longer than {EXPRESSION_CHARS_MAX} characters")
    return Expression(text, _Parser(_tokens(text)).expression())


Kind = Literal["path", "number", "text", "symbol", "end"]
_KEYWORDS: Final = frozenset({"and", "or", "not", "in"})
_CONSTANTS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}
_TOKEN: Final = re.compile(
    r"""(?P<blank>[ \t\r\n]+)
      | (?P<path>[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)*)
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)
      | (?P<text>"(?:[^"\\\n]|\\["'\\nt])*"|'(?:[^'\\\n]|\\["'\\nt])*')
      | (?P<symbol>==|!=|<=|>=|[<>()\[\],])""",
    re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t"}


@dataclass(frozen=True, slots=True)
class _Token:
    kind: Kind
    text: str
    position: int


def _tokens(text: str) -> tuple[_Token, ...]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if not found:
            if text[at] in "\"'":
                raise ExpressionError(at + 1, "text that does not end, or an unknown escape in it")
            instead = "; compare with `==`" if text[at] == "=" else ""
            raise ExpressionError(at + 1, f"unexpected `{text[at]}`{instead}")
        match found.lastgroup:
            case "path" | "number" | "text" | "symbol" as kind:
                tokens.append(_Token(kind, found.group(), at + 1))
            case _:
                pass
        at = found.end()
    tokens.append(_Token("end", "", len(text) + 1))
    return tuple(tokens)


class _Parser:
    """Recursive descent, one method per rule. Every way down goes through `_deeper`, so depth is bounded there."""

    def __init__(self, tokens: tuple[_Token, ...]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    def expression(self) -> Term:
        term = self._either()
        if self._token.kind != "end":
            raise self._unexpected("an operator or the end")
        return term

    @property
    def _token(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *texts: str) -> _Token | None:
        """Step over a symbol or keyword when it stands here."""
        token = self._token
        if token.kind in ("symbol", "path") and token.text in texts:
            self._at += 1
            return token
        return None

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._unexpected(f"`{text}`")

    def _unexpected(self, wanted: str) -> ExpressionError:
        token = self._token
        found = "the end" if token.kind == "end" else f"`{token.text[:40]}`"
        return ExpressionError(token.position, f"expected {wanted}, found {found}")

    def _either(self) -> Term:
        with self._deeper(1):
            terms = [self._both()]
            while self._take("or"):
                terms.append(self._both())
        return terms[0] if len(terms) == 1 else Either(tuple(terms))

    def _both(self) -> Term:
        terms = [self._not()]
        while self._take("and"):
            terms.append(self._not())
        return terms[0] if len(terms) == 1 else Both(tuple(terms))

    def _not(self) -> Term:
        count = 0
        while self._take("not"):
            count += 1
        with self._deeper(count):
            term = self._comparison()
        for _ in range(count):
            term = Not(term)
        return term

    @contextmanager
    def _deeper(self, levels: int) -> Iterator[None]:
        self._depth += levels
        if self._depth > DEPTH_MAX:
            raise ExpressionError(self._token.position, f"nested deeper than {DEPTH_MAX} levels")
        yield
        self._depth -= levels

    def _comparison(self) -> Term:
        left = self._operand()
        operator = self._comparator()
        if operator is None:
            return left
        right = self._operand()
        if self._token.text in ("==", "!=", "<", "<=", ">", ">=", "in"):
            raise ExpressionError(self._token.position, "comparisons do not chain; join them with `and`")
        return Compare(operator, left, right)

    def _comparator(self) -> Comparator | None:
        token = self._token
        if token.kind == "symbol" and token.text in ("==", "!=", "<", "<=", ">", ">="):
            self._at += 1
            return token.text  # type: ignore[return-value]  # narrowed by the test above
        if self._take("in"):
            return "in"
        if self._take("not"):
            self._need("in")
            return "not in"
        return None

    def _operand(self) -> Term:
        token = self._token
        if self._take("("):
            term = self._either()
            self._need(")")
            return term
        if self._take("["):
            return self._list()
        if token.kind in ("number", "text") or token.text in _CONSTANTS:
            return self._literal()
        path = self._path()
        if not self._take("("):
            return path
        if path.text not in ("exists", "len"):
            raise ExpressionError(token.position, f"no function `{path.text[:40]}`; there are exists() and len()")
        argument = self._path()
        self._need(")")
        return Exists(argument) if path.text == "exists" else Length(argument)

    def _path(self) -> Path:
        token = self._token
        if token.kind != "path" or token.text in _KEYWORDS or token.text in _CONSTANTS:
            raise self._unexpected("a path or a value")
        self._at += 1
        return Path(token.text)

    def _list(self) -> Constants:
        items: list[Constant] = []
        while not self._take("]"):
            if items:
                self._need(",")
            items.append(self._literal())
        return Constants(tuple(items))

    def _literal(self) -> Constant:
        token = self._token
        if token.kind == "path" and token.text in _CONSTANTS:
            value: str | int | float | bool | None = _CONSTANTS[token.text]
        elif token.kind == "number":
            value = _number(token)
        elif token.kind == "text":
            value = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[1]), token.text[1:-1])
        else:
            raise self._unexpected("text, a number, true, false or null")
        self._at += 1
        return Constant(value)


def _number(token: _Token) -> int | float:
    if len(token.text) > NUMBER_CHARS_MAX:
        raise ExpressionError(token.position, f"a number of more than {NUMBER_CHARS_MAX} characters")
    if token.text.lstrip("-").isdigit():
        return int(token.text)
    value = float(token.text)
    if value in (float("inf"), float("-inf")):
        raise ExpressionError(token.position, "a number out of range")
    return value

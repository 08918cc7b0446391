r"""Short texts that a simple regular expression matches: literals, classes, groups, alternatives and repetition.

What it does not read (look-around, references to groups, `\b`, `\p`) it answers with None, as it does a pattern that
the other dialect of JSON Schema writes in its own way. Every answer is meant to be checked with `re`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

REPEATS_MAX: Final = 10_000
DEPTH_MAX: Final = 50
_RANGE_MAX: Final = 512

_SETS: Final = {"d": "1", "w": "a", "s": " ", "D": "a", "W": "-", "S": "a"}
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v"}
_PREFERRED: Final = "aA10-_. "
_PRINTABLE: Final = "".join(map(chr, range(0x20, 0x7F)))
_ANYTHING: Final = "."

Text = Callable[[int], str]
"""Makes the text of a part; its one free repetition, if it has any, is that much longer than it must be."""


class _UnreadableError(Exception):
    """The pattern needs something that is not read here."""


def matching_text(pattern: str, *, chars_min: int = 0) -> str | None:
    """Return a text that the pattern should match anywhere in it, of at least `chars_min` characters if it can be."""
    parser = _Parser(pattern)
    try:
        made = parser.alternatives(0)
        if not parser.at_end:
            return None
    except (_UnreadableError, ValueError, IndexError):
        return None
    shortest = made(0)
    missing = min(max(0, chars_min - len(shortest)), REPEATS_MAX)
    text = made(missing) if missing else shortest
    if len(text) < chars_min and not parser.ends:
        text = text.ljust(chars_min, _ANYTHING)
    return text


@dataclass(slots=True)
class _Parser:
    """Recursive descent over the pattern. `ends` says whether a `$` stands anywhere, so that nothing may follow."""

    pattern: str
    at: int = 0
    ends: bool = False

    @property
    def at_end(self) -> bool:
        return self.at >= len(self.pattern)

    def alternatives(self, depth: int) -> Text:
        """The first alternative; the others are read only to get past them."""
        if depth > DEPTH_MAX:
            raise _UnreadableError
        first = self._sequence(depth)
        while self._take("|"):
            self._sequence(depth)
        return first

    def _sequence(self, depth: int) -> Text:
        parts: list[tuple[Text, int, int]] = []
        while not self.at_end and self.pattern[self.at] not in "|)":
            atom = self._atom(depth)
            least, most = self._repetition()
            if atom is not None:
                parts.append((atom, least, most))
        return _joined(parts)

    def _atom(self, depth: int) -> Text | None:
        char = self._next()
        match char:
            case "^":
                return None
            case "$":
                self.ends = True
                return None
            case ".":
                return _always("a")
            case "[":
                return _always(self._class())
            case "(":
                return self._group(depth)
            case "\\":
                return _always(self._escape(_SETS))
            case "*" | "+" | "?" | "{":
                raise _UnreadableError
            case _:
                return _always(char)

    def _group(self, depth: int) -> Text:
        if self._take("?") and not self._take(":"):
            named = self._take("P<") or self._take("<")
            if not named or self.pattern[self.at] in "=!":
                raise _UnreadableError
            self.at = self.pattern.index(">", self.at) + 1
        inside = self.alternatives(depth + 1)
        if not self._take(")"):
            raise _UnreadableError
        return inside

    def _class(self) -> str:
        """One character of a class: one that reads well when it has one of these, else its first."""
        negated = self._take("^")
        members = ""
        while not self._take("]") or not members:
            low = self._member()
            if not self._take("-"):
                members += low
            elif self.pattern[self.at] == "]" or len(low) > 1:
                members += low + "-"
            else:
                high = self._member()[0]
                members += "".join(map(chr, range(ord(low), min(ord(high), ord(low) + _RANGE_MAX) + 1)))
        choice = [char for char in _PREFERRED + _PRINTABLE if (char in members) != negated]
        return choice[0] if choice else members[0]

    def _member(self) -> str:
        char = self._next()
        return self._escape({**_SETS, "d": "0123456789", "w": "aA1_"}) if char == "\\" else char

    def _escape(self, sets: dict[str, str]) -> str:
        char = self._next()
        if char in sets or char in _ESCAPES:
            return sets.get(char) or _ESCAPES[char]
        if char in "xu":
            digits = 2 if char == "x" else 4
            self.at += digits
            return chr(int(self.pattern[self.at - digits : self.at], 16))
        if char.isalnum():
            raise _UnreadableError
        return char

    def _repetition(self) -> tuple[int, int]:
        """How often the atom before stands: (at least, at most)."""
        if self.at_end:
            return 1, 1
        match self.pattern[self.at]:
            case "?":
                bounds = 0, 1
            case "*":
                bounds = 0, REPEATS_MAX
            case "+":
                bounds = 1, REPEATS_MAX
            case "{":
                close = self.pattern.index("}", self.at)
                low, comma, high = self.pattern[self.at + 1 : close].partition(",")
                bounds = int(low or 0), int(high) if high else REPEATS_MAX if comma else int(low)
                self.at = close
            case _:
                return 1, 1
        self.at += 1
        self._take("?")  # a lazy one matches the same texts
        if bounds[0] > REPEATS_MAX:
            raise _UnreadableError
        return bounds

    def _next(self) -> str:
        self.at += 1
        return self.pattern[self.at - 1]

    def _take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False


def _always(text: str) -> Text:
    return lambda _more: text


def _joined(parts: list[tuple[Text, int, int]]) -> Text:
    """Parts after one another. The one that may be repeated most takes what is asked for beyond the shortest."""
    freest = max(range(len(parts)), key=lambda place: parts[place][2] - parts[place][1], default=0)

    def make(more: int) -> str:
        made = ""
        for place, (text, least, most) in enumerate(parts):
            if place != freest or not more:
                made += text(0) * least
            elif least == most == 1:
                made += text(more)
            else:
                width = max(1, len(text(0)))
                made += text(0) * min(most, least + -(-more // width))
        return made

    return make


__all__ = ["matching_text"]

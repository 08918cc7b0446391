"""Problems of a folder: gathered, never raised one by one, so that an author mends them in one go."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches

from contracts.errors import Rejected
from minutebook.models.problem import ProblemItem

PROBLEMS_MAX = 200
"""Problems that are reported; a file that is not a definition at all would otherwise fill a reply with noise."""

WORD_CHARS_MAX = 100
"""Characters of a word that are compared with what is known: comparing takes the square of them."""


class Problems:
    """What is wrong with the files of a folder, in the order of files and lines."""

    def __init__(self) -> None:
        self._items: dict[ProblemItem, None] = {}

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[ProblemItem]:
        return iter(self._items)

    def __contains__(self, item: ProblemItem) -> bool:
        return item in self._items

    def add(self, file: str, line: int | None, path: str, message: str) -> None:
        """Note a problem. The same problem noted twice is one."""
        self._items[ProblemItem(path=path, message=message, file=file, line=line)] = None

    def raise_if_any(self) -> None:
        """Raise everything that was noted.

        Raises:
            contracts.errors.Rejected: ``definition.invalid`` (422), one item per problem.
        """
        if not self._items:
            return
        items = sorted(self._items, key=lambda item: (item.file or "", item.line or 0))
        count = f"{len(items)} problem{'s' if len(items) > 1 else ''}"
        message = f"{count} in the definitions; nothing was stored. Mend each and load them again"
        if len(items) > PROBLEMS_MAX:
            message += f". The first {PROBLEMS_MAX} are listed"
        raise Rejected("definition.invalid", message, status=422, errors=tuple(items[:PROBLEMS_MAX]))


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, None when none is near."""
    return next(iter(get_close_matches(word[:WORD_CHARS_MAX], sorted(known), n=1, cutoff=0.6)), None)


def hint(word: str, known: Iterable[str]) -> str:
    """A clause that ends a message: what was probably meant, else what there is."""
    choices = sorted(known)
    if meant := nearest(word, choices):
        return f"; did you mean `{meant}`?"
    return f"; known: {', '.join(choices)}" if choices else ""

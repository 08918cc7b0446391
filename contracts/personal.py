"""Which texts of a fact tell of a person, and of whom: declared where the field is.

The record keeps such a text under the key of that person, sealed before it is hashed, so that a destroyed key erases it
and leaves every digest as it was. Ids of persons are pseudonyms and stay.
"""

from dataclasses import dataclass
from typing import Final

ERASED: Final = "[erased]"
ERASED_EMAIL: Final = "erased@invalid"
"""What a text, and an e-mail, reads as once its person is erased."""

OF_STREAM: Final = "stream"
"""For `Personal.of`: the person is who the stream is about."""


@dataclass(frozen=True, slots=True)
class Personal:
    """Marks a text as personal, in `Annotated`.

    `of` is the attribute of the same value that says whose it is: an id, or a value that has a `person`. None there
    says that it is nobody's, as when a key or a service did something: then the text is kept as it is.
    """

    of: str
    erased: str = ERASED

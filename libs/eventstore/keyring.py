"""Personal texts as tokens and back, under the keys of persons that this process holds at the moment.

AES-SIV, so the same text of the same person is always the same token: facts that are written again are the same bytes.
"""

import base64
import binascii
import re
from typing import Final, TypeVar
from uuid import UUID

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

K = TypeVar("K")
V = TypeVar("V")

KEY_BYTES: Final = 64
"""AES-256-SIV takes two keys of 32."""

MARK: Final = "$sealed:"
"""How a token begins; then the person's id as 32 hexadecimal digits, a colon, and the sealed text in base64url."""

_TOKEN: Final = re.compile(r"\$sealed:([0-9a-f]{32}):([0-9A-Za-z_-]{22,})")
_CACHED_CHARS_MAX: Final = 128
_CACHED_MAX: Final = 10_000
"""Names and addresses come again and again. What people write does not."""


def token_mark(person: UUID) -> str:
    """How every token of a person begins: what a search of stored bytes looks for."""
    return f"{MARK}{person.hex}:"


def persons_in(text: str) -> list[str]:
    """The persons, as hexadecimal digits, under whose keys a stored text holds tokens."""
    return [digits for digits, _ in _TOKEN.findall(text)]


class Keyring:
    """Keys of persons, by hexadecimal digits of their ids. `erasures` counts the keys that turned out to be destroyed.

    Whoever keeps opened texts for longer than a moment drops them when `erasures` has changed.
    """

    def __init__(self) -> None:
        self.erasures = 0
        self._ciphers: dict[str, AESSIV | None] = {}
        self._sealed: dict[tuple[UUID, str], str] = {}
        self._opened: dict[str, str] = {}

    def copy(self) -> "Keyring":
        """Return a ring with the same keys, which learns by itself from here on."""
        ring = Keyring()
        ring.erasures, ring._ciphers = self.erasures, dict(self._ciphers)
        return ring

    def knows(self, person: str) -> bool:
        return person in self._ciphers

    def __len__(self) -> int:
        return len(self._ciphers)

    def learn(self, person: str, key: bytes | None) -> None:
        """Take a person's key, None when it was destroyed."""
        cipher = None if key is None else AESSIV(key)
        if cipher is None and self._ciphers.get(person) is not None:
            self.erasures += 1
            self._sealed.clear()
            self._opened.clear()
        self._ciphers[person] = cipher

    def seal(self, person: UUID | None, text: str, erased: str) -> str:
        """Return the token of a text, or the text when it is nobody's. Of an erased person nothing is kept.

        Raises:
            KeyError: the person's key was not learned.
            UnicodeEncodeError: the text holds a lone surrogate.
        """
        if person is None:
            return text
        token = self._sealed.get((person, text))
        if token is None:
            digits = person.hex
            cipher = self._ciphers[digits]
            if cipher is None:
                return erased
            sealed = cipher.encrypt(text.encode(), [person.bytes])
            token = f"{MARK}{digits}:{base64.urlsafe_b64encode(sealed).rstrip(b'=').decode()}"
            if len(text) <= _CACHED_CHARS_MAX:
                _keep(self._sealed, (person, text), token)
        return token

    def open(self, _person: UUID | None, text: str, erased: str) -> str:
        """Return the text of a token, `erased` when its key was destroyed. What is no token of a known key stays."""
        if not text.startswith(MARK):
            return text
        opened = self._opened.get(text)
        if opened is None:
            found = _TOKEN.fullmatch(text)
            if found is None or found[1] not in self._ciphers:
                return text
            cipher = self._ciphers[found[1]]
            if cipher is None:
                return erased
            try:
                sealed = base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4))
                opened = cipher.decrypt(sealed, [bytes.fromhex(found[1])]).decode()
            except (InvalidTag, binascii.Error):  # what a key or a service wrote, which only looks like one
                return text
            if len(opened) <= _CACHED_CHARS_MAX:
                _keep(self._opened, text, opened)
        return opened


def _keep(cache: dict[K, V], key: K, value: V) -> None:
    if len(cache) >= _CACHED_MAX:
        cache.clear()
    cache[key] = value

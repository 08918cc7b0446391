"""Sealing: what may lie in the database and be read only with the installation's key, as grants and keys of persons.

AES-256-GCM. Sealed bytes are one octet of form, the id of the key (8), the nonce (12), then text and tag. The form, the
id and what the bytes belong to are authenticated too, so a row that is copied to another place does not open there.
"""

import base64
import binascii
import hashlib
import secrets as random
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from contracts.errors import Broken, Unavailable
from libs.config import Secrets

KEY_REF: Final = "sealing_key"
PREVIOUS_REF: Final = "sealing_key_previous"
"""The secrets that hold base64 of 32 bytes: what is sealed with, and what may still have been sealed with."""

KEY_BYTES: Final = 32

_FORM: Final = b"\x01"
_ID_BYTES: Final = 8
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_HEAD_BYTES: Final = len(_FORM) + _ID_BYTES


def new_key() -> str:
    """A fresh key as the secret holds it."""
    return base64.b64encode(random.token_bytes(KEY_BYTES)).decode()


@dataclass(frozen=True, slots=True)
class _Key:
    id: bytes
    cipher: AESGCM


class Sealing:
    """Seals under the key that `sealing_key` holds at that moment; opens that one's and `sealing_key_previous`'s."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    def ready(self) -> bool:
        """Whether there is a key to seal with.

        Raises:
            contracts.errors.Unavailable: ``sealing.key_malformed``, a secret is there and is no key.
        """
        self._read(PREVIOUS_REF)
        return self._read(KEY_REF) is not None

    def require(self) -> "_Key":
        """The key to seal with.

        Raises:
            contracts.errors.Unavailable: ``sealing.no_key`` or ``sealing.key_malformed``; the message says how to
                mend it.
        """
        key = self._read(KEY_REF)
        if key is None:
            raise Unavailable(
                "sealing.no_key",
                f"the installation has no sealing key, so nothing secret can be kept: set MINUTEBOOK_SECRET_"
                f"{KEY_REF.upper()} or the file {KEY_REF!r} in MINUTEBOOK_SECRETS_DIR to base64 of {KEY_BYTES} random "
                "bytes, the same for every service (`minutebook provision --sealing-key` makes one)",
            )
        return key

    def seal(self, plain: bytes, *, about: str) -> bytes:
        """Seal bytes that belong to `about`, which opening them must name again.

        Raises:
            contracts.errors.Unavailable: ``sealing.no_key`` or ``sealing.key_malformed``; the message says how to
                mend it.
        """
        key = self.require()
        # Random nonces serve for 2**32 messages of one key; what is sealed are credentials and keys, not a history.
        nonce = random.token_bytes(_NONCE_BYTES)
        head = _FORM + key.id
        return head + nonce + key.cipher.encrypt(nonce, plain, _associated(head, about))

    def open(self, sealed: bytes, *, about: str) -> bytes:
        """Return what was sealed.

        Raises:
            contracts.errors.Unavailable: ``sealing.key_missing``, it was sealed with a key that is not there.
            contracts.errors.Broken: ``sealing.broken``, it was changed, or belongs to something else.
        """
        if len(sealed) < _HEAD_BYTES + _NONCE_BYTES + _TAG_BYTES or not sealed.startswith(_FORM):
            raise Broken("sealing.broken", f"what is kept of {about} is not sealed bytes")
        head, nonce = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES : _HEAD_BYTES + _NONCE_BYTES]
        key = self._holding(head.removeprefix(_FORM))
        if key is None:
            raise Unavailable(
                "sealing.key_missing",
                f"what is kept of {about} was sealed with the key {head.removeprefix(_FORM).hex()}, which neither "
                f"{KEY_REF} nor {PREVIOUS_REF} holds: give the key that it was sealed with as {PREVIOUS_REF}",
            )
        try:
            return key.cipher.decrypt(nonce, sealed[_HEAD_BYTES + _NONCE_BYTES :], _associated(head, about))
        except InvalidTag:
            raise Broken(
                "sealing.broken", f"what is kept of {about} does not open: it was changed, or belongs to something else"
            ) from None

    def current(self, sealed: bytes) -> bool:
        """Whether bytes are sealed with the key of now, so that the previous one is not needed for them."""
        key = self._read(KEY_REF)
        return key is not None and sealed.startswith(_FORM + key.id)

    def _holding(self, key_id: bytes) -> _Key | None:
        keys = (self._read(ref) for ref in (KEY_REF, PREVIOUS_REF))
        return next((key for key in keys if key is not None and key.id == key_id), None)

    def _read(self, ref: str) -> _Key | None:
        """The key that a secret holds. Both alphabets of base64 are taken, padded or not."""
        text = self._secrets.get(ref)
        if text is None:
            return None
        plain = text.strip().rstrip("=").replace("-", "+").replace("_", "/")
        try:
            key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            raise Unavailable("sealing.key_malformed", f"the secret {ref} is not base64 of {KEY_BYTES} bytes")
        return _Key(hashlib.sha256(b"minutebook sealing key\0" + key).digest()[:_ID_BYTES], AESGCM(key))


def _associated(head: bytes, about: str) -> bytes:
    return head + about.encode()

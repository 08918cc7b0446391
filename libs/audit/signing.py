"""Ed25519 keys that sign seals and bundles: one secret of the installation, and public keys that anybody may hold."""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from contracts.errors import Rejected, Unavailable
from libs.config import Secrets

KEY_REF: Final = "seal_signing_key"
PUBLIC_KEYS_REF: Final = "seal_public_keys"
"""The secrets: what is signed with, and the public keys of what was signed before, one a line or as PEM."""

KEY_BYTES: Final = 32

_PEM: Final = "-----BEGIN"


def key_id(public: bytes) -> str:
    """How a public key is called: the first 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key. Nothing shows it."""

    public: bytes
    _private: Ed25519PrivateKey

    @property
    def id(self) -> str:
        return key_id(self.public)

    def sign(self, content: bytes) -> bytes:
        return self._private.sign(content)

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"


def signing_key(secrets: Secrets) -> SigningKey | None:
    """Return the key that this installation signs with, None where it has none.

    Raises:
        contracts.errors.Unavailable: ``seals.key_malformed``, the secret is there and is no such key.
    """
    text = secrets.get(KEY_REF)
    if text is None:
        return None
    try:
        if text.lstrip().startswith(_PEM):
            private = load_pem_private_key(text.encode(), password=None)
            if not isinstance(private, Ed25519PrivateKey):
                raise ValueError("another kind of key")
        else:
            private = Ed25519PrivateKey.from_private_bytes(_raw(text))
    except (ValueError, TypeError) as error:
        raise Unavailable(
            "seals.key_malformed",
            f"the secret {KEY_REF!r} is no Ed25519 key: it should hold PEM (`openssl genpkey -algorithm ed25519`) or "
            f"base64 of {KEY_BYTES} random bytes",
        ) from error
    return SigningKey(private.public_key().public_bytes_raw(), private)


class Keyring:
    """Public keys by their ids."""

    def __init__(self, keys: Iterable[bytes] = ()) -> None:
        self._keys = {key_id(public): public for public in keys}

    @classmethod
    def of(cls, secrets: Secrets, *texts: str) -> "Keyring":
        """The installation's own key, those that it signed with before, and keys given as texts.

        Raises:
            contracts.errors.Unavailable: ``seals.key_malformed``.
            contracts.errors.Rejected: ``seals.public_key_malformed``, one of the texts holds no public key.
        """
        own = signing_key(secrets)
        found = [] if own is None else [own.public]
        for text in (secrets.get(PUBLIC_KEYS_REF) or "", *texts):
            found += public_keys(text)
        return cls(found)

    @property
    def keys(self) -> dict[str, bytes]:
        """The keys, by id."""
        return dict(self._keys)

    def verify(self, id_: str, signature: bytes, content: bytes) -> bool | None:
        """Whether the key of this id signed the content; None where nobody here knows the key."""
        public = self._keys.get(id_)
        if public is None:
            return None
        try:
            Ed25519PublicKey.from_public_bytes(public).verify(signature, content)
        except InvalidSignature:
            return False
        return True


def public_keys(text: str) -> list[bytes]:
    """Return the public keys in a text: PEM, or one in hexadecimal or base64 a line.

    Raises:
        contracts.errors.Rejected: ``seals.public_key_malformed``.
    """
    try:
        if text.lstrip().startswith(_PEM):
            blocks = [f"{_PEM}{block}" for block in text.split(_PEM)[1:]]
            loaded = [load_pem_public_key(block.encode()) for block in blocks]
            if not all(isinstance(key, Ed25519PublicKey) for key in loaded):
                raise ValueError("another kind of key")
            return [key.public_bytes_raw() for key in loaded if isinstance(key, Ed25519PublicKey)]
        return [_raw(line) for line in text.split()]
    except (ValueError, TypeError) as error:
        raise Rejected(
            "seals.public_key_malformed",
            "a public key should be PEM, or 32 bytes in hexadecimal or base64, one a line",
        ) from error


def _raw(text: str) -> bytes:
    """32 bytes in hexadecimal, or in base64 of either alphabet, padded or not."""
    text = text.strip()
    if len(text) == 2 * KEY_BYTES:
        return bytes.fromhex(text)
    try:
        raw = base64.b64decode(text.replace("-", "+").replace("_", "/").rstrip("=") + "=", validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if len(raw) != KEY_BYTES:
        raise ValueError(f"{len(raw)} bytes")
    return raw

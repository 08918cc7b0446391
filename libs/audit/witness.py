"""Seals as somebody else keeps them: a file of JSON lines that grows, and that the record is held to later."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from contracts.errors import MinutebookError, Rejected
from libs.audit.merkle import Tree
from libs.audit.seals import FORMAT, Seal
from libs.audit.signing import key_id
from libs.canonical import canonical, parse

KEY_FORMAT: Final = "minutebook.key/1"

_BYTES_MAX: Final = 1 << 30
_LINE_BYTES_MAX: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Witness:
    """What a file of seals holds: seals as they were signed, and the public keys that stood with them."""

    seals: tuple[Seal, ...]
    keys: tuple[bytes, ...]


def written(seals: Sequence[Seal], keys: Iterable[bytes], tree: Tree) -> bytes:
    """Return the file. Each seal comes with the proof that its tree begins with that of the one before it."""
    lines = [canonical({"format": KEY_FORMAT, "key_id": key_id(key), "public": key.hex()}) for key in keys]
    before = 0
    for seal in seals:
        proof = [hash_.hex() for hash_ in tree.consistency(before, seal.size)]
        lines.append(canonical({**seal.said(), "signature": seal.signature.hex(), "consistency": proof}))
        before = seal.size
    return b"".join(line + b"\n" for line in lines)


def read(content: bytes) -> Witness:
    """Read a file of seals.

    Raises:
        contracts.errors.Rejected: ``seals.unreadable``, naming the line that is no seal and no key.
    """
    if len(content) > _BYTES_MAX:
        raise Rejected("seals.unreadable", f"a file of seals has at most {_BYTES_MAX} bytes")
    seals: list[Seal] = []
    keys: list[bytes] = []
    for number, value in _lines(content):
        try:
            match value["format"]:
                case "minutebook.seal/1":
                    seals.append(_seal(value))
                case "minutebook.key/1":
                    keys.append(bytes.fromhex(value["public"]))
                case _:
                    raise ValueError("of another format")
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise _unreadable(number) from error
    return Witness(tuple(seals), tuple(keys))


def _lines(content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = parse(line, what="a line", bytes_max=_LINE_BYTES_MAX)
        except MinutebookError as error:
            raise _unreadable(number) from error
        if not isinstance(value, dict):
            raise _unreadable(number)
        yield number, value


def _seal(value: dict[str, Any]) -> Seal:
    seal = Seal(
        number=value["number"],
        sealed_at=datetime.fromisoformat(value["sealed_at"]),
        era=value["era"],
        upto=value["upto"],
        size=value["size"],
        root=bytes.fromhex(value["root"]),
        key_id=value["key_id"],
        signature=bytes.fromhex(value["signature"]),
    )
    if json.loads(seal.statement()) != {key: value[key] for key in seal.said()} or seal.size < 1:
        raise ValueError("not as it was signed")
    return seal


def _unreadable(number: int) -> Rejected:
    return Rejected(
        "seals.unreadable",
        f"line {number} is no seal: a file of seals is what `minutebook audit seals --out FILE` writes",
    )


assert FORMAT == "minutebook.seal/1", "the formats that are read are those that are written"

"""JSON as this product keeps and reads it: one canonical form, and strict parsing at every edge."""

import hashlib
import json
from typing import Any, Final

import orjson

from contracts.base import BlobRef, JsonValue
from contracts.errors import Malformed

JSON_DEPTH_MAX = 64
JSON_INT_DIGITS_MAX = 400

_PRETTY: Final = orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS
_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def canonical(value: Any) -> bytes:
    """Return the canonical JSON of a value: sorted keys, no blanks, UTF-8. `1.0` stays a float.

    Raises:
        contracts.errors.Malformed: the value holds NaN, an infinity or a lone surrogate.
    """
    try:
        return _CANONICAL.encode(value).encode()
    except (ValueError, UnicodeEncodeError, RecursionError) as error:
        raise Malformed("json.not_canonical", f"the value cannot be kept as JSON: {error}") from error


def pretty(value: Any) -> str:
    """Return the JSON of a value as people and models read it: a key or an item on each line, keys sorted."""
    try:
        return orjson.dumps(value, option=_PRETTY).decode()
    except TypeError:  # an integer of more than 64 bits
        return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)


def blob(value: Any) -> tuple[BlobRef, bytes]:
    """Return the address of a JSON value and its content."""
    content = canonical(value)
    return BlobRef(digest=hashlib.sha256(content).hexdigest(), bytes=len(content)), content


def parse(data: bytes, *, what: str, bytes_max: int) -> JsonValue:
    """Parse JSON from outside. Errors say what is wrong with `what`.

    Refused: more than `bytes_max` bytes, nesting past `JSON_DEPTH_MAX`, repeated keys, NaN and infinities, numbers
    out of range, lone surrogates, NUL characters.

    Raises:
        contracts.errors.Malformed: with the reason.
    """
    if len(data) > bytes_max:
        raise Malformed("json.too_large", f"{what} has {len(data)} bytes; at most {bytes_max} are read", status=413)
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_unique,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_float,
        )
    except UnicodeDecodeError as error:
        raise Malformed("json.not_utf8", f"{what} is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise Malformed(
            "json.invalid", f"{what} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise Malformed("json.too_deep", f"{what} nests deeper than {JSON_DEPTH_MAX} levels") from error
    except ValueError as error:
        raise Malformed("json.refused", f"{what}: {error}") from error
    _check(value, what)
    return value  # type: ignore[no-any-return]


def _check(value: Any, what: str) -> None:
    """Refuse depth and text that PostgreSQL or UTF-8 could not keep. Iterative: depth must not be ours to survive."""
    todo: list[tuple[Any, int]] = [(value, 1)]
    while todo:
        item, depth = todo.pop()
        if isinstance(item, str):
            _check_text(item, what)
        elif isinstance(item, (dict, list)):
            if depth > JSON_DEPTH_MAX:
                raise Malformed("json.too_deep", f"{what} nests deeper than {JSON_DEPTH_MAX} levels")
            if isinstance(item, dict):
                for key in item:
                    _check_text(key, what)
            todo.extend((child, depth + 1) for child in (item.values() if isinstance(item, dict) else item))


def _check_text(text: str, what: str) -> None:
    if "\x00" in text:
        raise Malformed("json.nul", f"{what} holds a NUL character; remove it")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise Malformed("json.not_unicode", f"{what} holds half of a surrogate pair; send whole characters")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {key[:100]!r} is repeated")
            seen.add(key)
    return value


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


def _integer(text: str) -> int:
    if len(text) > JSON_INT_DIGITS_MAX:
        raise ValueError(f"an integer of {len(text)} digits is out of range")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"the number {text[:40]} is out of range")
    return value

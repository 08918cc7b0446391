"""Bodies from outside: limited before they are read whole, and parsed strictly."""

from email.message import Message
from typing import Final

from fastapi import Request
from pydantic import JsonValue

from contracts.errors import Rejected
from libs.canonical import parse

JSON: Final = "application/json"


async def read(request: Request, *, bytes_max: int) -> bytes:
    """Return the body.

    Raises:
        contracts.errors.Rejected: 413, as soon as it is known to be larger.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > bytes_max:
        raise _too_large(bytes_max)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > bytes_max:
            raise _too_large(bytes_max)
    return bytes(body)


def _too_large(bytes_max: int) -> Rejected:
    return Rejected("body.too_large", f"the body is larger than the {bytes_max} bytes that are read", status=413)


class StrictRequest(Request):
    """A request whose body was read within its limit and parsed by `libs.canonical`, before FastAPI asks for it."""

    _json_value: JsonValue

    async def take(self, *, bytes_max: int) -> None:
        """Read and parse the body. An empty one stands for an empty object.

        Raises:
            contracts.errors.Malformed: 400, it is not strict JSON.
            contracts.errors.Rejected: 413 too large, 415 not declared as JSON.
        """
        raw = await read(self, bytes_max=bytes_max)
        if raw and not _is_json(self.headers.get("content-type", "")):
            raise Rejected("body.not_json", f"send the body as `content-type: {JSON}`", status=415)
        self._json_value = parse(raw, what="the body", bytes_max=bytes_max) if raw else None
        self._body = raw

    async def json(self) -> JsonValue:
        return self._json_value


def _is_json(content_type: str) -> bool:
    if content_type == JSON:  # as nearly everybody sends it
        return True
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    return message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))

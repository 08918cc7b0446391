"""HTTP/1.1 read by llhttp, with an end to how much of a request's head is taken in."""

from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_BYTES_MAX: Final = 64 * 1024
"""The request line and the headers of one request. More is answered 400, and the connection closed."""

_PER_HEADER: Final = len(": \r\n")


class _TooLarge(Exception):
    """Ends the parser, which answers as for anything else that is no request."""


class BoundedHttp(HttpToolsProtocol):
    """One connection. The parser gathers a head for as long as it comes, so what has come of it is counted here.

    A line that is not whole yet is known to nobody but the parser: what is received of a head that has begun and does
    not end counts as it is. What comes whole is counted by its lines.
    """

    _lines = 0
    _received = 0
    _complete = False

    def data_received(self, data: bytes) -> None:
        going_on = not self._complete
        super().data_received(data)
        if self._complete or not going_on or self.transport.is_closing():
            return
        self._received += len(data)
        if self._received > HEAD_BYTES_MAX:
            self.logger.warning("request head of more than %d bytes refused", HEAD_BYTES_MAX)
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        self._lines, self._received, self._complete = 0, 0, False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + _PER_HEADER)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._complete = True
        super().on_headers_complete()

    def _count(self, more: int) -> None:
        self._lines += more
        if self._lines > HEAD_BYTES_MAX:
            raise _TooLarge

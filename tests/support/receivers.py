"""Where notices go, as processes of their own: an HTTP receiver that verifies signatures, and a mail server.

Each writes down what it took, a line each, and misbehaves as its folder's `faults` says: one word a line, taken one by
one. They know nothing of our code; signatures are verified by the reference implementation of Standard Webhooks.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

HANG_SECONDS: Final = 600


@dataclass(frozen=True)
class Taken:
    """What a receiver took, and the faults that it is to show next."""

    folder: Path
    url: str

    def all(self) -> list[dict[str, Any]]:
        """Everything that came, in order."""
        file = self.folder / "taken"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def misbehave(self, *faults: str) -> None:
        """Show these faults, one per message, from the next one on."""
        (self.folder / "faults").write_text("".join(f"{fault}\n" for fault in faults))


@asynccontextmanager
async def receiver(kind: str, folder: Path, *, secret: str = "") -> AsyncIterator[Taken]:
    """Run a receiver (`http` or `smtp`) until the test leaves it.

    `secret` is the one that signs webhooks; of a mail server the file with its certificate and key, with which it
    takes nothing before TLS and a login.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.receivers",
        kind,
        str(folder),
        secret,
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(30):
            port = int(await process.stdout.readline())
        yield Taken(folder, f"{kind}://127.0.0.1:{port}" + ("/hook" if kind == "http" else ""))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


class _Notebook:
    """The folder as the receiver's own process sees it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock = threading.Lock()

    def take(self, what: dict[str, Any]) -> str:
        """Write down what came, and return the fault to show."""
        with self._lock:
            with (self._folder / "taken").open("a") as file:
                file.write(json.dumps(what) + "\n")
            faults = self._folder / "faults"
            words = faults.read_text().splitlines() if faults.exists() else []
            if words:
                faults.write_text("".join(f"{word}\n" for word in words[1:]))
            return words[0] if words else ""


def _verified(secret: str, body: bytes, headers: dict[str, str]) -> bool | None:
    from standardwebhooks import Webhook, WebhookVerificationError

    if not secret:
        return None
    try:
        Webhook(secret).verify(body, headers)
    except WebhookVerificationError:
        return False
    return True


def _serve_http(notebook: _Notebook, secret: str) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            notebook.take({"method": "GET", "path": self.path})
            self._answer(200)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            fault = notebook.take(
                {
                    "path": self.path,
                    "headers": headers,
                    "body": json.loads(body),
                    "verified": _verified(secret, body, headers),
                    "at": time.time(),
                }
            )
            if fault == "hang":
                time.sleep(HANG_SECONDS)
            elif fault == "drop":
                self.connection.close()
            elif fault == "redirect":
                self._answer(307, location="/elsewhere")
            else:
                self._answer(int(fault or 204))

        def _answer(self, status: int, **headers: str) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Nothing: what came is in the folder."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    _listening(server.server_port)
    server.serve_forever()


def _serve_smtp(notebook: _Notebook, certificate: str) -> None:
    from aiosmtpd.smtp import SMTP, AuthResult

    class Handler:
        async def handle_RCPT(  # noqa: N802  the names are of the library
            self, server: Any, session: Any, envelope: Any, address: str, options: list[str]
        ) -> str:
            if address.startswith("nobody@"):
                return "550 no such mailbox"
            if address.startswith("later@"):
                return "451 try again later"
            envelope.rcpt_tos.append(address)
            return "250 OK"

        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
            message = message_from_bytes(envelope.content, policy=policy.default)
            fault = notebook.take(
                {
                    "from": envelope.mail_from,
                    "to": envelope.rcpt_tos,
                    "headers": {name.lower(): str(value) for name, value in message.items()},
                    "text": message.get_content(),
                    "login": session.auth_data.decode() if session.authenticated else None,
                    "tls": session.ssl is not None,
                }
            )
            if fault == "hang":
                await asyncio.sleep(HANG_SECONDS)
            elif fault == "drop":
                server.transport.abort()
            return fault if fault[:1].isdigit() else "250 OK"

    def authenticate(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
        return AuthResult(success=True, auth_data=f"{data.login.decode()} {data.password.decode()}".encode())

    options: dict[str, Any] = {}
    if certificate:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
        options = {
            "tls_context": context,
            "require_starttls": True,
            "auth_required": True,
            "authenticator": authenticate,
        }

    async def main() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: SMTP(Handler(), **options), "127.0.0.1", 0)
        _listening(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(main())


def _listening(port: int) -> None:
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()


def _arguments() -> Iterator[str]:
    parser = argparse.ArgumentParser()
    for name in ("kind", "folder", "secret"):
        parser.add_argument(name)
    parsed = parser.parse_args()
    yield from (parsed.kind, parsed.folder, parsed.secret)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    kind, folder, secret = _arguments()
    if kind == "http":
        _serve_http(_Notebook(Path(folder)), secret)
    else:
        _serve_smtp(_Notebook(Path(folder)), secret)

"""Notices by e-mail: one message of plain text, handed to a mail server once.

The server's address is a secret, `smtp://user:password@host:587` or `smtps://…`. Over `smtp` the connection is made
TLS where the server offers it, and must be before a password is sent.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP as CRLF
from email.utils import format_datetime
from typing import Final
from urllib.parse import unquote, urlsplit

import aiosmtplib

from services.effects.notices.letters import Letter
from services.effects.notices.outcomes import Lost, NotSent, Outcome, Sent

_PERMANENT: Final = 500
_PORTS: Final = {"smtp": 587, "smtps": 465}
_QUIT_SECONDS: Final = 1.0
_NO_ADDRESS: Final = NotSent(
    "the mail server's address is no smtp://user:password@host:port; mend the secret that the channel's url_ref names"
)


def message_of(letter: Letter, *, sender: str, to: Sequence[str]) -> bytes:
    """The message. Its id and its date are the notice's, so two copies of it are seen to be one.

    Raises:
        ValueError: a header would not be one line.
    """
    message = EmailMessage(policy=CRLF)
    message["From"] = sender
    message["To"] = ", ".join(to)
    message["Subject"] = letter.title
    message["Date"] = format_datetime(datetime.fromisoformat(letter.raised_at))
    message["Message-ID"] = f"<{letter.notice_id}@{_domain(sender)}>"
    message["Auto-Submitted"] = "auto-generated"
    link = f"\n\n{letter.link}" if letter.link else ""
    message.set_content(f"{letter.text}{link}\n", cte="quoted-printable")
    return message.as_bytes()


async def send(url: str, message: bytes, *, sender: str, to: Sequence[str], within: timedelta) -> Outcome:
    """Hand a message to the server once. Those whom it refuses are left out, unless it refuses everybody."""
    client = _client(url, sender, within)
    if client is None:
        return _NO_ADDRESS
    handed_over = False
    try:
        async with asyncio.timeout(within.total_seconds()):
            await client.connect()
            await client.mail(sender)
            if (refusal := await _refused(client, to)) is not None:
                return refusal
            handed_over = True
            await client.data(message)
    except aiosmtplib.SMTPDataError as error:
        return NotSent(f"the mail server refused the message ({error.code})", final=error.code >= _PERMANENT)
    except aiosmtplib.SMTPResponseException as error:
        return NotSent(f"the mail server answered {error.code}")
    except (aiosmtplib.SMTPException, OSError, TimeoutError) as error:
        reason = type(error).__name__
        return Lost(f"no answer: {reason}") if handed_over else NotSent(f"no connection: {reason}")
    else:
        return Sent()
    finally:
        await _leave(client)


def _client(url: str, sender: str, within: timedelta) -> aiosmtplib.SMTP | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if port is None or not parts.hostname or parts.scheme not in _PORTS:
        return None
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    over_tls = parts.scheme == "smtps"
    return aiosmtplib.SMTP(
        hostname=parts.hostname,
        port=port,
        username=user or None,
        password=password or None,
        use_tls=over_tls,
        start_tls=False if over_tls else (True if user else None),
        local_hostname=_domain(sender),
        timeout=within.total_seconds(),
    )


async def _refused(client: aiosmtplib.SMTP, to: Sequence[str]) -> NotSent | None:
    """Name the recipients; the refusal when none of them is taken."""
    codes: list[int] = []
    for address in to:
        try:
            await client.rcpt(address)
        except aiosmtplib.SMTPRecipientRefused as error:
            codes.append(error.code)
    if len(codes) < len(to):
        return None
    return NotSent(f"the mail server refused every recipient ({codes[0]})", final=min(codes) >= _PERMANENT)


async def _leave(client: aiosmtplib.SMTP) -> None:
    """Say goodbye where there is time for it: what became of the message is known by now."""
    if client.is_connected:
        with contextlib.suppress(aiosmtplib.SMTPException, OSError, TimeoutError):
            await client.quit(timeout=_QUIT_SECONDS)
    client.close()


def _domain(sender: str) -> str:
    return sender.rpartition("@")[2]

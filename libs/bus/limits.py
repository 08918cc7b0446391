"""What a message may be, in every adapter alike."""

from collections.abc import Sequence

from contracts.errors import Broken
from contracts.subjects import ENVELOPE_BYTES_MAX
from libs.bus.port import Message


def check_sizes(messages: Sequence[Message]) -> None:
    """Refuse what would never be taken, before anything is sent.

    Raises:
        contracts.errors.Broken: naming the subject and the size.
    """
    for message in messages:
        if len(message.data) > ENVELOPE_BYTES_MAX:
            raise Broken(
                "bus.message_too_large",
                f"a message on {message.subject} has {len(message.data)} bytes; an envelope has at most "
                f"{ENVELOPE_BYTES_MAX}: send addresses, not facts",
            )

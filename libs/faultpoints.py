"""Named places where a test may kill this process, to prove that nothing is lost or done twice there.

`MINUTEBOOK_FAULTPOINT=publish.before` ends the process with SIGKILL when it comes by that place;
`publish.before:3` the third time. Unset, a fault point does nothing.
"""

import os
import signal
from collections.abc import Mapping
from typing import Final

from contracts.errors import Broken

VARIABLE: Final = "MINUTEBOOK_FAULTPOINT"

FAULTPOINTS: Final[Mapping[str, str]] = {
    "append.before": "decided, nothing written",
    "append.committed": "written, nothing published",
    "publish.before": "about to publish what was written",
    "publish.acked": "published, the outbox row still there",
    "message.handled": "a batch is handled, its messages are not acked",
    "ask.handled": "an ask is carried out, its reply is not sent",
    "claim.taken": "a runner holds a claim and has not started",
    "attempt.executed": "an attempt has its result, nothing of it is recorded",
    "effect.pending": "the pending is committed, the call not made",
    "effect.called": "the call was answered, the verdict not recorded",
    "effect.probed": "the target was asked, what it said not recorded",
    "notice.raised": "notices are raised, the message that asked for them is not acked",
    "notice.sending": "the try is announced, nothing is sent",
    "notice.sent": "the channel answered, the verdict not recorded",
    "inbound.accepted": "a delivery is stored, its notice not published",
    "inbound.recorded": "events are recorded, nobody has looked for who waits for them",
    "inbound.matched": "waits took events, which are not routed",
    "erase.recorded": "the record says that a person is erased, their key is still there",
    "erase.destroyed": "the key is destroyed, what was made of it is still there",
    "erase.dropped": "snapshots and credentials are gone, head rows still name the person",
    "erase.rebuilt": "nothing is left to do but to tell where the person stands in clear",
}
"""Every fault point there is, and what is true when a process dies there."""


class _Armed:
    """The fault point that the environment names, and how many passes it lets live."""

    def __init__(self, setting: str) -> None:
        self.name, _, nth = setting.partition(":")
        if self.name and self.name not in FAULTPOINTS:
            raise Broken(
                "faultpoint.unknown", f"{VARIABLE} names {self.name!r}; it must be one of {', '.join(FAULTPOINTS)}"
            )
        if nth and not (nth.isascii() and nth.isdecimal() and int(nth) > 0):
            raise Broken("faultpoint.count", f"{VARIABLE}={setting!r}: after the colon comes a count from 1")
        self.left = int(nth) if nth else 1


_armed = _Armed(os.environ.get(VARIABLE, ""))


def faultpoint(name: str) -> None:
    """Die here by SIGKILL when the environment says so.

    Raises:
        contracts.errors.Broken: the name is not in `FAULTPOINTS`.
    """
    if name not in FAULTPOINTS:
        raise Broken("faultpoint.unknown", f"{name!r} is not listed in libs.faultpoints.FAULTPOINTS; add it there")
    if name != _armed.name:
        return
    _armed.left -= 1
    if _armed.left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

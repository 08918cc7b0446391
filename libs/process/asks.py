"""From asks to commands: parse, refuse the late, answer with typed replies. The api's side is `ask`."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from contracts.base import Frozen
from contracts.commands import Command
from contracts.errors import Broken, Malformed, MinutebookError, Unavailable, from_problem, refusal
from contracts.replies import Reply
from libs.bus.disposition import parse
from libs.bus.port import Bus
from libs.clock import monotonic
from libs.eventstore.port import EventStore
from libs.faultpoints import faultpoint
from libs.process.again import persist
from libs.process.dbclock import DatabaseClock
from libs.process.pile import Pile
from libs.telemetry import metrics
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import span

Cmd = TypeVar("Cmd", bound=Command)
R = TypeVar("R", bound=Frozen)

_log = get_logger("asks")

AskOf = Callable[[Cmd], Awaitable[R]]
AsksOf = Callable[[Sequence[Cmd]], Awaitable[Sequence[R | MinutebookError]]]


def answer(bus: Bus, store: EventStore, command: type[Cmd], handle: AskOf[Cmd, R]) -> None:
    """Answer one command of the owner, each ask by itself. What `handle` raises becomes the reply's problem."""
    clock = DatabaseClock(store)
    seconds = metrics.ASK_SECONDS
    name = command.subject.removeprefix("ask.")

    async def on_ask(_subject: str, data: bytes, _headers: Mapping[str, str]) -> bytes:
        began = time.perf_counter()
        problem: MinutebookError | None = None
        try:
            asked = parse(command, data)
            with span(command.subject, traceparent=asked.traceparent):
                if await clock.now() > asked.deadline:
                    raise Unavailable(
                        "ask.late", f"{command.subject} came after its deadline; nothing was done", again=True
                    )
                reply = _reply(result=await handle(asked))
                faultpoint("ask.handled")
        except MinutebookError as error:
            problem, reply = error, _reply(error=error)
        except Exception as error:
            _log.exception("ask failed", subject=command.subject)
            problem = Broken("ask.failed", f"{type(error).__name__} while answering {command.subject}")
            reply = _reply(error=problem)
        result = "ok" if problem is None else type(problem).__name__.lower()
        seconds.labels(name, result).observe(time.perf_counter() - began)
        return reply

    bus.answer(command.subject, on_ask)


def answer_together(bus: Bus, store: EventStore, command: type[Cmd], handle: AsksOf[Cmd, R]) -> None:
    """Answer one command of the owner, as many asks at a time as have piled up.

    `handle` answers one result or error per ask, in order; what it raises becomes the problem of all of them.
    """
    pile: Pile[Cmd, R] = Pile(handle, name=f"asks on {command.subject}")

    async def together(asked: Cmd) -> R:
        outcome = await pile.put(asked)
        if isinstance(outcome, MinutebookError):
            raise outcome
        return outcome

    answer(bus, store, command, together)


def _reply(*, result: Frozen | None = None, error: MinutebookError | None = None) -> bytes:
    reply: Reply[Any] = Reply(result=result, problem=refusal(error) if error else None)
    return reply.model_dump_json(serialize_as_any=True).encode()


ASK_TRIES = 3
ASK_TRY_AGAIN_SECONDS = 0.1


class _Unanswered(Unavailable):
    """Nobody has said anything: what was asked may have been done or not."""


async def ask(bus: Bus, command: Command, reply: type[R], *, timeout: timedelta) -> R:
    """Ask the owner, and ask again with the same ids while nobody answers, or while it lost to others.

    `timeout` ends at the command's deadline. What was asked before is late when it is asked again: else it could be
    done after the one asked again was refused.

    Raises:
        contracts.errors.MinutebookError: the owner's typed no.
        contracts.errors.Unavailable: no reply in time, or the owner cannot record it now; `extra` holds the command's
            id, to be sent again.
    """
    over = monotonic() + timeout.total_seconds()
    patience = timeout / ASK_TRIES
    for left in reversed(range(ASK_TRIES)):
        deadline = command.deadline - patience * left
        asked = command.model_copy(update={"deadline": deadline})
        until = over - patience.total_seconds() * left
        try:
            return await persist(partial(_ask, bus, asked, reply, until=until), until=until)
        except _Unanswered as error:
            if not left:
                raise Unavailable(
                    "ask.unanswered",
                    f"{command.subject.split('.')[1]} did not answer in {timeout.total_seconds():g} s; "
                    "send the same command again",
                    command_id=str(command.command_id),
                ) from error
        except Unavailable as error:
            if not (error.again and left):
                error.extra.setdefault("command_id", str(command.command_id))
                raise
        await asyncio.sleep(ASK_TRY_AGAIN_SECONDS)
    raise AssertionError("unreachable")


async def _ask(bus: Bus, asked: Command, reply: type[R], *, until: float) -> R:
    data = asked.model_dump_json().encode()
    try:
        answer_ = await bus.ask(
            asked.subject, data, headers={}, timeout=timedelta(seconds=max(until - monotonic(), 0.0))
        )
    except Unavailable as error:
        # Where nobody answers at all the owner is being replaced: that is told at once, and over soon.
        raise _Unanswered(error.code, error.message, again=error.code == "bus.no_responder") from error
    parsed: Reply[R] = parse(Reply[reply], answer_)  # type: ignore[valid-type]
    if parsed.problem is not None:
        raise from_problem(parsed.problem)
    if parsed.result is None:
        raise Malformed("reply.empty", f"{asked.subject} was answered with neither result nor problem")
    return parsed.result

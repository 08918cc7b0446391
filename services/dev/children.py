"""Child processes that end with us, whatever ends us.

On Linux the kernel signals a child when its parent dies (`PR_SET_PDEATHSIG`), `kill -9` included. Its limits:
the signal comes when the *thread* that started the child ends, so children are started from the main thread only;
the setting survives `exec` but not a change of user, so it is set after that; and a child that is stopped
(`SIGSTOP`) takes it when it goes on. Elsewhere nothing signals an orphan, so every server looks for the one that an
earlier run left behind and ends it before it starts: see `end_leftovers`.
"""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from contracts.errors import Broken, Unavailable

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.02
_LOG_TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Account:
    """The system user that a child runs as, when it is not ours."""

    uid: int
    gid: int


class Child:
    """A running child process. It may be awaited and stopped from any event loop, not only the one that began it."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], stop_signals: Sequence[signal.Signals]) -> None:
        self.name = name
        self._process = process
        self._stop_signals = stop_signals

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; negative when a signal ended it. Asking also reaps it."""
        return self._process.poll()

    async def wait(self, timeout: timedelta | None = None) -> int | None:
        """Return the exit code once it has ended, or None when it still runs after `timeout`."""
        deadline = None if timeout is None else time.monotonic() + timeout.total_seconds()
        while (code := self.returncode) is None:
            if deadline is not None and time.monotonic() >= deadline:
                return None
            await asyncio.sleep(_POLL_SECONDS)
        return code

    async def stop(self, grace: timedelta = timedelta(seconds=10)) -> int:
        """End it and return its exit code: each of its stop signals in turn, `grace` apart, then `SIGKILL`.

        Already ended is fine. A cancelled stop kills, so that nothing is left behind.
        """
        try:
            for number in self._stop_signals:
                self._send(number)
                if (code := await self.wait(grace)) is not None:
                    return code
        finally:
            self._send(signal.SIGKILL)
            code = self._process.wait()
        return code

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            self._process.send_signal(number)


def start_child(
    argv: Sequence[str | Path],
    *,
    name: str,
    log: Path,
    cwd: Path | None = None,
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
    stop_signals: Sequence[signal.Signals] = (signal.SIGTERM,),
) -> Child:
    """Start a program in a session of its own, so that Ctrl-C in the terminal reaches us and not it.

    Its output is appended to `log`; its input is empty; its umask is 077. When we die it gets the first of
    `stop_signals`. `env` replaces the environment.

    Raises:
        contracts.errors.Unavailable: the program is missing or may not be run.
        contracts.errors.Broken: not called from the main thread, whose end alone means that we end.
    """
    if threading.current_thread() is not threading.main_thread():
        raise Broken(
            "dev.not_main_thread", f"{name} must be started from the main thread, or it would die with this one"
        )
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        process = subprocess.Popen(
            [str(part) for part in argv],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env=None if env is None else dict(env),
            start_new_session=True,
            umask=0o077,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=() if account else None,
            # Runs between fork and exec, after the change of user. It calls nothing that takes a lock.
            preexec_fn=_die_with_parent(stop_signals[0]),
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(
            "dev.child_not_started",
            f"{name} could not be started from {argv[0]}: {error}. Is it installed, and may this user run it?",
        ) from error
    finally:
        os.close(output)
    return Child(name, process, stop_signals)


def _die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    if sys.platform != "linux":
        return None
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = (ctypes.c_int, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_ulong)

    def in_child() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # it died before the kernel knew what to send
            os.kill(os.getpid(), signal.SIGKILL)

    return in_child


async def end_leftovers(
    belongs: Callable[[psutil.Process], bool],
    *,
    stop_signals: Sequence[signal.Signals],
    grace: timedelta = timedelta(seconds=10),
) -> int:
    """End every process that `belongs` and return how many there were. For orphans of a run that was killed.

    The caller holds the lock of what they work on, so they cannot be another run's. `belongs` may raise psutil's
    errors: a process that is gone, or that we may not look at, is not ours.
    """
    found = [process for process in psutil.process_iter() if _judged(belongs, process)]
    left = found
    for number in (*stop_signals, signal.SIGKILL):
        for process in left:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        left = await _still_running(left, grace)
        if not left:
            break
    return len(found)


def _judged(belongs: Callable[[psutil.Process], bool], process: psutil.Process) -> bool:
    try:
        return process.pid != os.getpid() and belongs(process)
    except psutil.Error:
        return False


async def _still_running(processes: Sequence[psutil.Process], within: timedelta) -> list[psutil.Process]:
    deadline = time.monotonic() + within.total_seconds()
    while left := [process for process in processes if _alive(process)]:
        if time.monotonic() >= deadline:
            break
        await asyncio.sleep(_POLL_SECONDS)
    return left


def _alive(process: psutil.Process) -> bool:
    """A zombie has ended; that its new parent has not asked yet is no concern of ours."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def log_tail(log: Path, *, lines: int = 12) -> str:
    """Return the last lines of a child's log, for the message that says why it did not start."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(empty log)"


__all__ = ["Account", "Child", "end_leftovers", "log_tail", "start_child"]

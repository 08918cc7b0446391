"""A service as a process, forked from one that has imported the program: a start takes a tenth of a second, not three.

Nothing else differs from `minutebook serve <name>`: its environment, its log, its signals, its end. One whose
environment asks for a library in front of the others is that very command: that is read at the start of a program only.
"""

import ctypes
import importlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Final

import typer

from libs import faultpoints
from services.host.commands import run_services
from services.host.roster import ORDER
from tests.support.stack import COMMAND

_PR_SET_PDEATHSIG: Final = 1
_PRELOAD: Final = ("tests.chaos.effects_alone", *(f"services.{name}.app" for name in ORDER))


def context() -> ForkServerContext:
    """Where processes are forked from. The first start imports the program."""
    forking = multiprocessing.get_context("forkserver")
    forking.set_forkserver_preload(list(_PRELOAD))
    return forking


def start(forking: ForkServerContext, name: str, *, env: Mapping[str, str], log: Path) -> ForkServerProcess:
    """Start a service; its output is appended to `log`."""
    process = forking.Process(target=_serve, args=(name, dict(env), str(log)), name=name)
    process.start()
    return process


def die_with_parent() -> None:
    """End this process when the one that it was forked from ends, whatever ends that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def write_to(log: Path) -> None:
    """Append everything that this process says to a file."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)


def _serve(name: str, env: Mapping[str, str], log: str) -> None:
    die_with_parent()
    os.setsid()
    write_to(Path(log))
    if "LD_PRELOAD" in env:
        os.execve(COMMAND, [str(COMMAND), "serve", name], env)
    os.environ.clear()
    os.environ.update(env)
    importlib.reload(faultpoints)  # it read the environment of the process that this one was forked from
    try:
        run_services([name])
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


__all__ = ["context", "die_with_parent", "start", "write_to"]

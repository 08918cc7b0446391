"""What `minutebook dev` and `minutebook demo` do."""

import asyncio
import json
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Coroutine
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from contracts.errors import MinutebookError, Unavailable
from libs.telemetry import logs, tracing
from minutebook.cli.session import Exit, explained, fail
from services.dev.demo import play
from services.dev.options import Options
from services.dev.people import ADMINISTRATOR, OUTSIDER, PEOPLE
from services.dev.screen import Screen, tell
from services.dev.stack import Stack


def show_demo(data_dir: Path | None, *, port: int, reset: bool, as_json: bool) -> None:
    """Play the demo, in a temporary folder when none is given, and print what happened."""
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    logs.configure("demo", level="error")
    kept = nullcontext(str(data_dir)) if data_dir else tempfile.TemporaryDirectory(prefix="minutebook-")
    with kept as folder, Screen(console) as screen:
        options = Options(data_dir=Path(folder), port=port, reset=reset, keep=data_dir is not None)

        async def show_it() -> Any:
            async with Stack(options, screen.progress) as stack:
                screen.progress("the model is scripted: no key is needed and nothing is spent")
                return await play(stack, options.definitions, screen.show)

        result = run(show_it())
    if as_json:
        print(json.dumps(result.as_json()))
    else:
        tell(console, result, lambda text: console.print(text, markup=False))
    raise typer.Exit(Exit.OK if result.ok else Exit.RUN_FAILED)


def stay_up(options: Options) -> None:
    """Run a stack until a signal stops it or one of its servers ends."""
    console = Console(highlight=False, soft_wrap=True)
    logs.configure("dev", level="warning")

    async def until_ended() -> None:
        ended = None
        try:
            async with Stack(options, lambda what: console.print(f"{what} …", style="dim")) as stack:
                _greet(console, stack, options)
                ended = await stack.ended()
        except (Unavailable, OSError):
            if ended is None:  # else a service could not take leave of the server that is gone, which is no news
                raise
        raise SystemExit(f"minutebook: {ended}; everything was stopped, start it again on the same folder")

    run(until_ended())


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a stack's work in the main thread: SIGINT and SIGTERM stop it in order, errors end it in words."""

    async def guarded() -> Any:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await work

    tracing.configure("minutebook")
    try:
        with explained():
            return asyncio.run(guarded())
    except asyncio.CancelledError:
        raise typer.Exit(Exit.OK) from None
    except TimeoutError:
        fail("it took too long; run it again with more time, or look at the log in its data directory")
    except MinutebookError as error:
        for item in error.errors:
            print(f"{item.file or ''}:{item.line or ''} {item.path}: {item.message}", file=sys.stderr)
        fail(f"{error.message} ({error.code})")
    finally:
        tracing.shutdown()


def _greet(console: Console, stack: Stack, options: Options) -> None:
    """Say where everything is and how to start a run."""
    command = shlex.quote(Path(sys.argv[0]).name if "/" not in sys.argv[0] else os.path.relpath(sys.argv[0]))
    console.print(f"\n[bold]Minutebook is up[/bold] at {stack.api_url}  (reference: {stack.api_url}/docs)\n")
    console.print("Tokens")
    for person in (*PEOPLE, OUTSIDER):
        if person.email in stack.tokens:
            console.print(f"  {person.email:<24}{stack.tokens[person.email]}  {person.name}", markup=False)
    console.print(f"\nEverything is also in {options.data_dir / 'dev.json'}.\n\nStart a run and answer its decisions:")
    if (options.definitions / "workflows/core-dev").is_dir():
        start = "start core-dev --project core -c jira_key=CORE-7 -c summary='Print an invoice again'"
    else:
        start = "start WORKFLOW --project core -c KEY=VALUE"
    console.print(f"  {command} --as dana@example.com runs {start}", markup=False)
    console.print(f"  {command} --as priya@example.com inbox", markup=False)
    console.print(f"  {command} --as {ADMINISTRATOR} runs list", markup=False)
    console.print("\nStop with Ctrl-C; runs go on at the next start.")

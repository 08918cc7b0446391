"""`minutebook dev`, `minutebook demo` and `minutebook definitions validate`."""

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
from typing import Annotated, Any

import typer
from rich.console import Console

from contracts.errors import MinutebookError, Unavailable
from libs.language.loader import load_folder
from libs.telemetry import logs, tracing
from minutebook.cli.session import SESSION, Exit, explained, fail
from minutebook.folder import read_folder
from services.dev.datadir import DEFAULT_DATA_DIR
from services.dev.demo import play
from services.dev.people import ADMINISTRATOR, OUTSIDER, PEOPLE
from services.dev.screen import Screen, tell
from services.dev.stack import DEFINITIONS, PORT_DEFAULT, Options, Stack

DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help="folder that holds everything of this stack")]
DefinitionsOption = Annotated[Path, typer.Option("--definitions", help="folder of definitions to sync at the start")]
PortOption = Annotated[int, typer.Option("--port", help="port of the API; 0 takes a free one", min=0, max=65535)]
ResetOption = Annotated[bool, typer.Option("--reset", help="begin with an empty history")]


def demo(
    data_dir: DataDirOption = None,
    port: PortOption = 0,
    reset: ResetOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one object at the end and nothing else")] = False,
) -> None:
    """Take a story from a Jira webhook to a pull request, with agents, decisions and the record that proves it.

    Runs in a temporary folder unless --data-dir names one. The model is scripted and costs nothing.
    """
    json_wanted = as_json or SESSION.json
    console = Console(stderr=json_wanted, highlight=False, soft_wrap=True)
    logs.configure("demo", level="error")
    kept = nullcontext(str(data_dir)) if data_dir else tempfile.TemporaryDirectory(prefix="minutebook-")
    with kept as folder, Screen(console) as screen:
        options = Options(data_dir=Path(folder), port=port, reset=reset, keep=data_dir is not None)

        async def show_it() -> Any:
            async with Stack(options, screen.progress) as stack:
                screen.progress("the model is scripted: no key is needed and nothing is spent")
                return await play(stack, options.definitions, screen.show)

        result = run(show_it())
    if json_wanted:
        print(json.dumps(result.as_json()))
    else:
        tell(console, result, lambda text: console.print(text, markup=False))
    raise typer.Exit(Exit.OK if result.ok else Exit.RUN_FAILED)


def dev(
    data_dir: DataDirOption = None,
    port: PortOption = PORT_DEFAULT,
    reset: ResetOption = False,
    definitions: DefinitionsOption = DEFINITIONS,
    live: Annotated[bool, typer.Option("--live", help="ask the provider's models, with ANTHROPIC_API_KEY")] = False,
) -> None:
    """Run the whole product on this machine until it is stopped. Runs survive a restart on the same folder."""
    console = Console(highlight=False, soft_wrap=True)
    logs.configure("dev", level="warning")
    options = Options(data_dir=data_dir or DEFAULT_DATA_DIR, port=port, reset=reset, definitions=definitions, live=live)

    async def stay_up() -> None:
        ended = None
        try:
            async with Stack(options, lambda what: console.print(f"{what} …", style="dim")) as stack:
                _greet(console, stack, options)
                ended = await stack.ended()
        except (Unavailable, OSError):
            if ended is None:  # else a service could not take leave of the server that is gone, which is no news
                raise
        raise SystemExit(f"minutebook: {ended}; everything was stopped, start it again on the same folder")

    run(stay_up())


def validate(
    folder: Annotated[Path, typer.Argument(help="a folder like definitions/")],
    as_json: Annotated[bool, typer.Option("--json", help="print the problems as JSON")] = False,
) -> None:
    """Check a folder of definitions without a server: every problem with file, line and path."""
    json_wanted = as_json or SESSION.json
    try:
        with explained():
            checked = load_folder(read_folder(folder))
    except MinutebookError as error:
        problems = [item.model_dump(include={"file", "line", "path", "message"}) for item in error.errors]
        if json_wanted:
            print(json.dumps({"ok": False, "problems": problems}))
        else:
            for problem in problems:
                print(f"{problem['file']}:{problem['line'] or 1}: {problem['path']}: {problem['message']}")
        raise typer.Exit(Exit.REFUSED) from error
    if json_wanted:
        print(json.dumps({"ok": True, "problems": []}))
    else:
        for bundle in checked.workflows:
            print(f"workflow {bundle.definition.id}: {bundle.hash[:12]} ok")


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
    console.print(
        f"  {command} --as dana@example.com runs start core-dev --project core -c jira_key=CORE-7", markup=False
    )
    console.print(f"  {command} --as priya@example.com inbox", markup=False)
    console.print(f"  {command} --as {ADMINISTRATOR} runs list", markup=False)
    console.print("\nStop with Ctrl-C; runs go on at the next start.")

"""`minutebook dev`, `demo` and `definitions validate`, `schema` and `simulate`: what they take.

Every `minutebook` command reads this file to offer these. What they do is imported when one of them is run, since the
servers' libraries take seconds to import and an inbox must not wait for them.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from minutebook.cli.session import SESSION
from services.dev.datadir import DEFAULT_DATA_DIR
from services.dev.options import DEFINITIONS, PORT_DEFAULT, Options

DataDirOption = Annotated[Path | None, typer.Option("--data-dir", help="folder that holds everything of this stack")]
DefinitionsOption = Annotated[Path, typer.Option("--definitions", help="folder of definitions to sync at the start")]
PortOption = Annotated[int, typer.Option("--port", help="port of the API; 0 takes a free one", min=0, max=65535)]
ResetOption = Annotated[bool, typer.Option("--reset", help="begin with an empty history")]


class FileKind(StrEnum):
    """The files that have a schema."""

    WORKFLOW = "workflow"
    SOURCES = "sources"
    SERVER = "server"
    CHANNELS = "channels"


def demo(
    data_dir: DataDirOption = None,
    port: PortOption = 0,
    reset: ResetOption = False,
    as_json: Annotated[bool, typer.Option("--json", help="print one object at the end and nothing else")] = False,
) -> None:
    """Take a story from a Jira webhook to a pull request, with agents, decisions and the record that proves it.

    Runs in a temporary folder unless --data-dir names one. The model is scripted and costs nothing.
    """
    from services.dev.commands import show_demo

    show_demo(data_dir, port=port, reset=reset, as_json=as_json or SESSION.json)


def dev(
    data_dir: DataDirOption = None,
    port: PortOption = PORT_DEFAULT,
    reset: ResetOption = False,
    definitions: DefinitionsOption = DEFINITIONS,
    live: Annotated[bool, typer.Option("--live", help="ask the provider's models, with ANTHROPIC_API_KEY")] = False,
    processes: Annotated[
        bool, typer.Option("--processes", help="run each service as a process of its own, kept up")
    ] = False,
) -> None:
    """Run the whole product on this machine until it is stopped. Runs survive a restart on the same folder."""
    from services.dev.commands import stay_up

    folder = data_dir or DEFAULT_DATA_DIR
    stay_up(Options(data_dir=folder, port=port, reset=reset, definitions=definitions, live=live, processes=processes))


def validate(
    folder: Annotated[Path, typer.Argument(help="a folder like definitions/")],
    as_json: Annotated[bool, typer.Option("--json", help="print the problems as JSON")] = False,
) -> None:
    """Check a folder of definitions without a server: every problem with file, line and path."""
    from services.dev.validation import check_folder

    check_folder(folder, as_json=as_json or SESSION.json)


def schema(
    of: Annotated[FileKind, typer.Argument(help="the file that it describes")] = FileKind.WORKFLOW,
) -> None:
    """Print the JSON Schema of a workflow's YAML, or of sources.yaml, channels.yaml or a server's, for an editor."""
    from services.dev.validation import print_schema

    print_schema(of.value)


def simulate(
    target: Annotated[str, typer.Argument(help="a folder like definitions/, or the id of a shipped workflow")],
    workflow: Annotated[str | None, typer.Option(help="which workflow of the folder, where it has several")] = None,
    variant: Annotated[str | None, typer.Option(help="one of the workflow's variants")] = None,
    context: Annotated[list[str], typer.Option("--context", "-c", help="KEY=VALUE, repeated")] = [],  # noqa: B006
    context_json: Annotated[str | None, typer.Option(help="the whole context as JSON or @FILE")] = None,
    outputs: Annotated[
        Path | None, typer.Option(help="JSON file: step → what it hands off; else the least that its schema takes")
    ] = None,
    recorded: Annotated[
        str | None, typer.Option("--run", help="take context, outputs and answers of this run, from the server")
    ] = None,
    answer: Annotated[
        list[str],
        typer.Option(help="STEP=OUTCOME of a decision, repeated for its next rounds; else it is approved"),
    ] = [],  # noqa: B006
    at: Annotated[str | None, typer.Option(help="when it begins, as 2026-11-29T12:00; else now")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print one object and nothing else")] = False,
) -> None:
    """Walk a workflow in memory: its path, decisions, waits, would-be writes and cost. Nothing is called."""
    from minutebook.cli.values import instant, json_object, pairs
    from services.dev.simulate import run_simulation

    run_simulation(
        target,
        workflow=workflow,
        variant=variant,
        context={**json_object("--context-json", context_json), **pairs("--context", context)},
        outputs=outputs,
        recorded=recorded,
        answers=answer,
        at=instant("--at", at),
        as_json=as_json or SESSION.json,
    )

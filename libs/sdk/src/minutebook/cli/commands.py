"""Commands on runs, decisions and definitions."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from minutebook.cli.session import Exit, call, fail, out, show
from minutebook.client import Client
from minutebook.folder import read_folder
from minutebook.models import (
    DefinitionSummary,
    HistoryEntry,
    InboxItem,
    JsonObject,
    RunChanged,
    RunSummary,
    RunView,
)
from minutebook.models.states import DecisionOutcome

runs = typer.Typer(help="Start runs and look at them.", no_args_is_help=True)
definitions = typer.Typer(help="Declare workflows and look at them.", no_args_is_help=True)

RunId = Annotated[str, typer.Argument(help="the run's id")]
LISTED_MAX = 100


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0)  # the first is what one copies
    return table


def _pairs(values: list[str]) -> JsonObject:
    context: JsonObject = {}
    for value in values:
        key, sign, text = value.partition("=")
        if not sign or not key:
            fail(f"--context takes KEY=VALUE, not {value!r}", Exit.USAGE)
        context[key] = text
    return context


def _value(text: str | None) -> Any:
    """JSON given on the command line, or in a file as @FILE."""
    if text is None:
        return None
    try:
        return json.loads(Path(text[1:]).read_text() if text.startswith("@") else text)
    except (OSError, ValueError) as error:
        fail(f"--revised takes JSON or @FILE: {error}", Exit.USAGE)


@runs.command("start")
def start(
    definition: Annotated[str, typer.Argument(help="id of the definition")],
    context: Annotated[list[str], typer.Option("--context", "-c", help="KEY=VALUE, repeated")] = [],  # noqa: B006
    context_json: Annotated[str | None, typer.Option(help="the whole context as JSON or @FILE")] = None,
    project: Annotated[str | None, typer.Option(help="project that the run is filed under")] = None,
    key: Annotated[str | None, typer.Option(help="idempotency key: the same key starts one run")] = None,
    wait: Annotated[
        float, typer.Option(help="seconds to wait for it to end, or to wait for somebody", min=0, max=60)
    ] = 0,
) -> None:
    """Start a run."""
    values = {**(_value(context_json) or {}), **_pairs(context)}
    changed = call(lambda c: c.start_run(definition, values, project_id=project, idempotency_key=key, wait=wait))
    if not show(changed):
        out.print(f"run {changed.run_id} is {changed.state}")


@runs.command("list")
def list_runs(
    definition: Annotated[str | None, typer.Option(help="only runs of this definition")] = None,
    state: Annotated[str | None, typer.Option(help="only runs in this state")] = None,
    limit: Annotated[int, typer.Option(help="how many at most", min=1)] = LISTED_MAX,
) -> None:
    """List runs, newest first."""
    filters = {k: v for k, v in {"definition": definition, "state": state}.items() if v}

    async def read(client: Client) -> list[RunSummary]:
        found: list[RunSummary] = []
        async for summary in client.runs(**filters):
            found.append(summary)
            if len(found) == limit:
                break
        return found

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No runs.")
        return
    table = _table("RUN", "DEFINITION", "STATE", "STAGE", "STARTED", "COST")
    for run in found:
        cost = f"${run.cost_microdollars / 1e6:.4f}"
        started = run.created_at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(str(run.run_id), run.definition_id, run.state, run.stage or "-", started, cost)
    out.print(table)


@runs.command("show")
def show_run(run_id: RunId) -> None:
    """Show where a run stands."""
    run = call(lambda c: c.run(run_id))
    if show(run):
        return
    _print_run(run)


def _print_run(run: RunView) -> None:
    outcome = f", {run.outcome}" if run.outcome else ""
    out.print(f"[bold]{run.definition_name}[/bold]  {run.run_id}  {run.state}{outcome}")
    if run.reason:
        out.print(f"reason: {run.reason}", markup=False)
    table = _table("STEP", "KIND", "STATE", "ROUND", "ATTEMPTS", "COST")
    for step in run.steps:
        cost = f"${step.cost_microdollars / 1e6:.4f}" if step.cost_microdollars else "-"
        table.add_row(step.key, step.kind, step.state, str(step.round), str(len(step.attempts)), cost)
    out.print(table)
    for waiting in run.waiting_for:
        out.print(f"waits for {waiting.role} at {waiting.step}: decision {waiting.decision_id}")
    if run.waiting_for and run.project_id is None:
        out.print("filed under no project: only its initiator and administrators see it, whatever role they hold")
    for effect in run.effects:
        out.print(f"{effect.system}.{effect.tool}: {effect.state} {effect.reference or ''}", markup=False)


@runs.command("history")
def history(run_id: RunId) -> None:
    """Tell a run's history in words."""

    async def read(client: Client) -> list[HistoryEntry]:
        return [entry async for entry in client.history(run_id)]

    entries = call(read)
    if show(entries):
        return
    for entry in entries:
        at = entry.at.astimezone().strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        out.print(f"{at}  {entry.text}", markup=False)


def _operate(act: str, run_id: str, reason: str | None) -> None:
    changed = call(lambda c: c.operate(run_id, act, reason))
    _changed(changed)


def _changed(changed: RunChanged) -> None:
    if not show(changed):
        out.print(f"run {changed.run_id} is {changed.state}")


Reason = Annotated[str | None, typer.Option(help="why, for the record")]


@runs.command("cancel")
def cancel(run_id: RunId, reason: Reason = None) -> None:
    """Cancel a run: open steps end, nothing more is written."""
    _operate("cancel", run_id, reason)


@runs.command("suspend")
def suspend(run_id: RunId, reason: Reason = None) -> None:
    """Stop planning a run until it is resumed."""
    _operate("suspend", run_id, reason)


@runs.command("resume")
def resume(run_id: RunId) -> None:
    """Plan a suspended run on from where it stands."""
    _operate("resume", run_id, None)


@runs.command("retry")
def retry(run_id: RunId, step: Annotated[str, typer.Argument(help="key of the failed step")]) -> None:
    """Try a failed step once more."""
    _changed(call(lambda c: c.retry_step(run_id, step)))


def inbox() -> None:
    """List the decisions that wait for you."""

    async def read(client: Client) -> list[InboxItem]:
        return [item async for item in client.inbox()]

    items = call(read)
    if show(items):
        return
    if not items:
        out.print("Nothing waits for you.")
        return
    table = _table("DECISION", "RUN OF", "STEP", "ROLE", "SINCE", "OUTCOMES")
    for item in items:
        decision = item.decision
        since = decision.opened_at.astimezone().strftime("%Y-%m-%d %H:%M")
        table.add_row(
            str(decision.decision_id),
            decision.definition_id,
            decision.step,
            decision.role,
            since,
            " ".join(decision.outcomes),
        )
    out.print(table)


def decide(
    decision_id: Annotated[str, typer.Argument(help="the decision's id, from `inbox`")],
    outcome: Annotated[DecisionOutcome, typer.Argument(help="the answer")],
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="why, for the record and the redo")] = None,
    revised: Annotated[str | None, typer.Option(help="the artefact as it should be, as JSON or @FILE")] = None,
) -> None:
    """Answer a decision."""
    artifact = _value(revised)
    accepted = call(lambda c: c.decide(decision_id, outcome, comment=comment, revised_artifact=artifact))
    if not show(accepted):
        out.print(f"{outcome} recorded; run {accepted.run_id} goes on")


@definitions.command("sync")
def sync(folder: Annotated[Path, typer.Argument(help="a folder like definitions/")]) -> None:
    """Declare a folder of definitions: all of it, or nothing and every problem."""

    async def send(client: Client) -> Any:
        return await client.sync(read_folder(folder))

    result = call(send)
    if show(result):
        return
    for thing in result.synced:
        mark = "new version" if thing.changed else "unchanged"
        out.print(f"{thing.kind} {thing.id}: {thing.hash[:12]} {mark}")


@definitions.command("list")
def list_definitions() -> None:
    """List the definitions that can be started."""

    async def read(client: Client) -> list[DefinitionSummary]:
        return [item async for item in client.definitions()]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No definitions. Declare some with `minutebook definitions sync DIR`.")
        return
    table = _table("DEFINITION", "NAME", "VERSION", "ENABLED")
    for item in found:
        table.add_row(item.id, item.name, item.hash[:12], "yes" if item.enabled else "no")
    out.print(table)

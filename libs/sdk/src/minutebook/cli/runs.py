"""Commands on runs: starting, reading and operating them."""

from typing import Annotated

import typer

from minutebook.cli.printing import moment, money, table, where_and_how
from minutebook.cli.session import call, out, show
from minutebook.cli.values import instant, json_object, json_value, pairs, request_of
from minutebook.client import Client
from minutebook.models import ForkRequest, HistoryEntry, RunChanged, RunSummary, RunView

runs = typer.Typer(help="Start runs, look at them and operate them.", no_args_is_help=True)

RunId = Annotated[str, typer.Argument(help="the run's id")]
Reason = Annotated[str | None, typer.Option("--reason", "-m", help="why, for the record")]
Key = Annotated[str | None, typer.Option(help="idempotency key: repeated with it, the command is done once")]
LISTED_MAX = 100


@runs.command("start")
def start(
    definition: Annotated[str, typer.Argument(help="id of the definition")],
    context: Annotated[list[str], typer.Option("--context", "-c", help="KEY=VALUE, repeated")] = [],  # noqa: B006
    context_json: Annotated[str | None, typer.Option(help="the whole context as JSON or @FILE")] = None,
    project: Annotated[str | None, typer.Option(help="project that the run is filed under")] = None,
    variant: Annotated[str | None, typer.Option(help="one of the definition's variants")] = None,
    key: Annotated[str | None, typer.Option(help="idempotency key: the same key starts one run")] = None,
    wait: Annotated[
        float, typer.Option(help="seconds to wait for it to end, or to wait for somebody", min=0, max=60)
    ] = 0,
) -> None:
    """Start a run."""
    values = {**json_object("--context-json", context_json), **pairs("--context", context)}
    changed = call(
        lambda c: c.start_run(definition, values, project_id=project, variant=variant, idempotency_key=key, wait=wait)
    )
    _changed(changed)


@runs.command("list")
def list_runs(
    definition: Annotated[str | None, typer.Option(help="only runs of this definition")] = None,
    state: Annotated[list[str], typer.Option(help="only runs in this state; repeated: in one of them")] = [],  # noqa: B006
    project: Annotated[str | None, typer.Option(help="only runs of this project")] = None,
    initiated_by: Annotated[str | None, typer.Option(help="only runs that this user or key (its id) started")] = None,
    parent: Annotated[str | None, typer.Option(help="only runs that restart or were forked from this one")] = None,
    context: Annotated[list[str], typer.Option("--context", "-c", help="only runs with this KEY=VALUE")] = [],  # noqa: B006
    since: Annotated[str | None, typer.Option(help="created at or after this moment, as 2026-11-29T12:00")] = None,
    before: Annotated[str | None, typer.Option(help="created before this moment")] = None,
    limit: Annotated[int, typer.Option(help="how many at most", min=1)] = LISTED_MAX,
) -> None:
    """List runs, newest first."""
    created_from, created_before = instant("--since", since), instant("--before", before)
    values = pairs("--context", context)

    async def read(client: Client) -> list[RunSummary]:
        found: list[RunSummary] = []
        async for summary in client.runs(
            definition=definition,
            state=state or None,
            project=project,
            initiated_by=initiated_by,
            parent=parent,
            created_from=created_from,
            created_before=created_before,
            context=values,
        ):
            found.append(summary)
            if len(found) == limit:
                break
        return found

    found = call(read)
    if not show(found):
        print_runs(found)


def print_runs(found: list[RunSummary]) -> None:
    """Print runs as a table."""
    if not found:
        out.print("No runs.")
        return
    rows = table("RUN", "DEFINITION", "STATE", "STAGE", "STARTED", "COST")
    for run in found:
        rows.add_row(
            str(run.run_id),
            run.definition_id,
            run.state,
            run.stage or "-",
            moment(run.created_at),
            money(run.cost_microdollars),
        )
    out.print(rows)


@runs.command("show")
def show_run(run_id: RunId) -> None:
    """Show where a run stands."""
    run = call(lambda c: c.run(run_id))
    if not show(run):
        _print_run(run)


def _print_run(run: RunView) -> None:
    outcome = f", {run.outcome}" if run.outcome else ""
    variant = f"  ({run.variant})" if run.variant else ""
    out.print(f"[bold]{run.definition_name}[/bold]{variant}  {run.run_id}  {run.state}{outcome}")
    if run.parent:
        out.print(f"begun from {run.parent}", markup=False)
    if run.reason:
        out.print(f"reason: {run.reason}", markup=False)
    rows = table("STEP", "KIND", "STATE", "ROUND", "ATTEMPTS", "COST")
    for step in run.steps:
        cost = money(step.cost_microdollars) if step.cost_microdollars else "-"
        rows.add_row(step.key, step.kind, step.state, str(step.round), str(len(step.attempts)), cost)
    out.print(rows)
    for waiting in run.waiting_for:
        out.print(where_and_how(waiting), markup=False)
    if run.waiting_for and run.project_id is None:
        out.print("filed under no project: only its initiator and administrators see it, whatever role they hold")
    for effect in run.effects:
        out.print(f"{effect.system}.{effect.tool}: {effect.state} {effect.reference or ''}", markup=False)
    for fork in run.forks:
        out.print(f"begun from this run: {fork}", markup=False)


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
    _changed(call(lambda c: c.operate(run_id, act, reason)))


def _changed(changed: RunChanged) -> None:
    if not show(changed):
        out.print(f"run {changed.run_id} is {changed.state}")


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


@runs.command("complete")
def complete(
    run_id: RunId,
    step: Annotated[str, typer.Argument(help="key of the manual step")],
    artifact: Annotated[str, typer.Option(help="what it hands off, as JSON or @FILE")],
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="for the record")] = None,
    key: Key = None,
) -> None:
    """Complete a manual step with an artefact."""
    value = json_value("--artifact", artifact)
    _changed(call(lambda c: c.complete_step(run_id, step, value, comment=comment, idempotency_key=key)))


@runs.command("restart")
def restart(run_id: RunId, key: Key = None) -> None:
    """Start a new run with the context of this one, of the version that new runs take now."""
    _changed(call(lambda c: c.restart(run_id, idempotency_key=key)))


@runs.command("fork")
def fork(
    run_id: RunId,
    from_step: Annotated[str | None, typer.Option(help="go on just before this step began last")] = None,
    at_version: Annotated[int | None, typer.Option(help="go on after this fact of its history", min=1)] = None,
    context: Annotated[list[str], typer.Option("--context", "-c", help="KEY=VALUE over the old context")] = [],  # noqa: B006
    context_json: Annotated[str | None, typer.Option(help="the same as one JSON object or @FILE")] = None,
    artifacts: Annotated[
        str | None, typer.Option(help="by step, what finished steps should have handed off: JSON or @FILE")
    ] = None,
    version: Annotated[str | None, typer.Option(help="hash of another version of the definition")] = None,
    key: Key = None,
) -> None:
    """Start a new run from a point of this one's history, by default the present."""
    request = request_of(
        ForkRequest,
        at_version=at_version,
        from_step=from_step,
        context={**json_object("--context-json", context_json), **pairs("--context", context)},
        artifacts=json_object("--artifacts", artifacts),
        hash=version,
    )
    _changed(call(lambda c: c.fork(run_id, request, idempotency_key=key)))

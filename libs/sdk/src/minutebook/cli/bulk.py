"""Many runs at once: `minutebook runs bulk retry` and `minutebook runs bulk cancel`."""

from typing import Annotated, Literal

import typer

from minutebook.cli.runs import print_runs, runs
from minutebook.cli.session import Exit, call, fail, out, show
from minutebook.cli.values import instant, pairs, request_of
from minutebook.models import BulkResult, RunsFilter

bulk = typer.Typer(help="Retry or cancel every run that a filter takes.", no_args_is_help=True)
runs.add_typer(bulk, name="bulk")

Definition = Annotated[str | None, typer.Option(help="runs of this definition")]
States = Annotated[list[str], typer.Option("--state", help="runs in this state; repeated: in one of them")]
Project = Annotated[str | None, typer.Option(help="runs of this project")]
InitiatedBy = Annotated[str | None, typer.Option(help="runs that this user or key (its id) started")]
Context = Annotated[list[str], typer.Option("--context", "-c", help="runs with this KEY=VALUE")]
Since = Annotated[str | None, typer.Option(help="created at or after this moment, as 2026-11-29T12:00")]
Before = Annotated[str | None, typer.Option(help="created before this moment")]
Confirm = Annotated[
    int | None, typer.Option(help="do it: the count that the command told without this option", min=0, max=500)
]


@bulk.command("retry")
def retry(
    definition: Definition = None,
    state: States = [],  # noqa: B006
    project: Project = None,
    initiated_by: InitiatedBy = None,
    context: Context = [],  # noqa: B006
    since: Since = None,
    before: Before = None,
    confirm: Confirm = None,
) -> None:
    """Try the failed step of failed and suspended runs once more."""
    wanted = _filter(definition, state, project, initiated_by, context, since, before)
    _do("retry", wanted, confirm, None)


@bulk.command("cancel")
def cancel(
    definition: Definition = None,
    state: States = [],  # noqa: B006
    project: Project = None,
    initiated_by: InitiatedBy = None,
    context: Context = [],  # noqa: B006
    since: Since = None,
    before: Before = None,
    confirm: Confirm = None,
    reason: Annotated[str | None, typer.Option("--reason", "-m", help="why, for the record")] = None,
) -> None:
    """Cancel open runs."""
    wanted = _filter(definition, state, project, initiated_by, context, since, before)
    _do("cancel", wanted, confirm, reason)


def _filter(
    definition: str | None,
    state: list[str],
    project: str | None,
    initiated_by: str | None,
    context: list[str],
    since: str | None,
    before: str | None,
) -> RunsFilter:
    return request_of(
        RunsFilter,
        definition=definition,
        state=tuple(state),
        project=project,
        initiated_by=initiated_by,
        created_from=instant("--since", since),
        created_before=instant("--before", before),
        context=pairs("--context", context),
    )


def _do(act: Literal["retry", "cancel"], wanted: RunsFilter, confirm: int | None, reason: str | None) -> None:
    result = call(lambda c: c.bulk(act, wanted, confirm=confirm, reason=reason))
    shown = show(result)
    if confirm is None:
        if not shown:
            _tell_what_would_be(act, result)
        return
    refused = [item for item in result.items if item.problem is not None]
    if not shown:
        for item in result.items:
            became = f"is {item.run.state}" if item.run else ""
            said = f"refused: {item.problem.detail} ({item.problem.code})" if item.problem else became
            out.print(f"run {item.run_id} {said}", markup=False)
    if refused:
        fail(f"{len(refused)} of {result.count} runs were refused", Exit.REFUSED)


def _tell_what_would_be(act: str, result: BulkResult) -> None:
    print_runs(list(result.sample))
    if result.count > len(result.sample):
        out.print(f"... and {result.count - len(result.sample)} more")
    if result.count:
        out.print(f"Nothing was done. To {act} these {result.count}, give --confirm {result.count} as well.")

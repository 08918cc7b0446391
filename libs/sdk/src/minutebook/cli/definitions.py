"""Commands on definitions and their versions."""

from pathlib import Path
from typing import Annotated, Any

import typer

from minutebook.cli.printing import HASH_CHARS, moment, table
from minutebook.cli.session import call, out, show
from minutebook.client import Client
from minutebook.folder import read_folder
from minutebook.models import DefinitionDiff, DefinitionSummary, DefinitionView, FieldChange, SyncResult

definitions = typer.Typer(help="Declare workflows and look at them.", no_args_is_help=True)

DefinitionId = Annotated[str, typer.Argument(help="id of the definition")]
VALUE_CHARS_MAX = 200


@definitions.command("sync")
def sync(
    folder: Annotated[Path, typer.Argument(help="a folder like definitions/")],
    canary: Annotated[
        int | None,
        typer.Option(
            help="percentage of new runs that take the changed workflows, until `promote`; else all", min=1, max=99
        ),
    ] = None,
) -> None:
    """Declare a folder of definitions: all of it, or nothing and every problem."""

    async def send(client: Client) -> SyncResult:
        return await client.sync(read_folder(folder), canary_percent=canary)

    result = call(send)
    if show(result):
        return
    for thing in result.synced:
        mark = "new version" if thing.changed else "unchanged"
        out.print(f"{thing.kind} {thing.id}: {thing.hash[:HASH_CHARS]} {mark}")
    for warning in result.warnings:
        out.print(f"warning: {warning}", markup=False)


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
    rows = table("DEFINITION", "NAME", "VERSION", "CANARY", "ENABLED")
    for item in found:
        canary = "-"
        if item.canary_percent is not None:
            canary = f"{item.declared_hash[:HASH_CHARS]} for {item.canary_percent} %"
        rows.add_row(item.id, item.name, item.hash[:HASH_CHARS], canary, "yes" if item.enabled else "no")
    out.print(rows)


@definitions.command("show")
def show_definition(definition: DefinitionId) -> None:
    """Show a definition: its steps and its versions."""
    found = call(lambda c: c.definition(definition))
    if not show(found):
        _print_definition(found)


def _print_definition(found: DefinitionView) -> None:
    out.print(f"[bold]{found.name}[/bold]  {found.id}{'' if found.enabled else '  (disabled)'}")
    if found.description:
        out.print(found.description.strip(), markup=False)
    if found.required_context:
        out.print(f"needs: {', '.join(found.required_context)}", markup=False)
    if found.variants:
        out.print(f"variants: {', '.join(found.variants)}", markup=False)
    steps = table("STEP", "STAGE", "KIND", "WHO OR WHAT")
    for stage in found.stages:
        for step in stage.steps:
            whole_tool = f"{step.system}.{step.tool}" if step.tool else None
            what = step.role or whole_tool or step.source or step.gate or ", ".join(step.branches) or step.executor
            steps.add_row(step.key, stage.key, step.kind, what or "-")
    out.print(steps)
    versions = table("VERSION", "DECLARED", "BY", "TAKEN BY")
    for version in found.versions:
        share = f"{version.canary_percent} % of new runs" if version.canary_percent else "-"
        taken = "new runs" if version.current else share
        versions.add_row(version.hash[:HASH_CHARS], moment(version.declared_at), version.declared_by.name, taken)
    out.print(versions)


@definitions.command("diff")
def diff(
    definition: DefinitionId,
    before: Annotated[str | None, typer.Argument(help="hash of the one; else the version that new runs take")] = None,
    after: Annotated[str | None, typer.Argument(help="hash of the other; else the version declared last")] = None,
) -> None:
    """Compare two versions step by step, with the runs that stand where they differ."""
    found = call(lambda c: c.diff(definition, before=before, after=after))
    if not show(found):
        _print_diff(found)


def _print_diff(found: DefinitionDiff) -> None:
    out.print(f"{found.definition_id}: {found.before[:HASH_CHARS]} → {found.after[:HASH_CHARS]}")
    if not found.settings and not found.steps:
        out.print("No difference.")
    for change in found.settings:
        _print_change(change, indent="  ")
    for step in found.steps:
        out.print(f"  {step.key}: {step.kind}", markup=False)
        for change in step.fields:
            _print_change(change, indent="    ")
    if found.steps:
        out.print(f"{found.open_runs} open runs of the first; {len(found.touched)} stand at a step that differs")
    for touched in found.touched:
        out.print(f"  {touched.run.run_id} {touched.run.state} at {', '.join(touched.steps)}", markup=False)


def _print_change(change: FieldChange, *, indent: str) -> None:
    out.print(f"{indent}{change.path}: {_short(change.before)} → {_short(change.after)}", markup=False)


def _short(value: Any) -> str:
    text = repr(value) if value is not None else "nothing"
    return text if len(text) <= VALUE_CHARS_MAX else text[: VALUE_CHARS_MAX - 1] + "…"


@definitions.command("promote")
def promote(
    definition: DefinitionId,
    version: Annotated[str, typer.Argument(help="hash of the version, or its first characters")],
) -> None:
    """Let every new run take a version that was declared before."""
    promoted = call(lambda c: c.promote(definition, version))
    if not show(promoted):
        out.print(f"new runs of {promoted.definition_id} take {promoted.hash[:HASH_CHARS]}")

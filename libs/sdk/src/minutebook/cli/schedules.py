"""Commands on schedules."""

from typing import Annotated

import typer

from minutebook.cli.printing import table
from minutebook.cli.session import call, out, show
from minutebook.client import Client
from minutebook.models import ScheduleChanged, ScheduleView

schedules = typer.Typer(help="Look at schedules, pause and resume them.", no_args_is_help=True)

ScheduleId = Annotated[str, typer.Argument(help="the schedule's id, from `schedules list`")]


@schedules.command("list")
def list_schedules(
    definition: Annotated[str | None, typer.Option(help="only schedules of this definition")] = None,
    state: Annotated[str | None, typer.Option(help="active, paused or retired")] = None,
) -> None:
    """List schedules with their next firings, each on its own clock."""

    async def read(client: Client) -> list[ScheduleView]:
        return [item async for item in client.schedules(definition=definition, state=state)]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No schedules.")
        return
    rows = table("SCHEDULE", "DEFINITION", "LINE", "ZONE", "STATE", "NEXT")
    for item in found:
        coming = "\n".join(slot.local for slot in item.next) or "-"
        rows.add_row(str(item.schedule_id), item.definition_id, item.line, item.timezone, item.state, coming)
    out.print(rows)


@schedules.command("pause")
def pause(schedule_id: ScheduleId) -> None:
    """Start no runs by this schedule until it is resumed."""
    _changed(call(lambda c: c.pause_schedule(schedule_id)))


@schedules.command("resume")
def resume(schedule_id: ScheduleId) -> None:
    """Let it start runs again; what it would have started meanwhile is not made up for."""
    _changed(call(lambda c: c.resume_schedule(schedule_id)))


def _changed(changed: ScheduleChanged) -> None:
    if not show(changed):
        out.print(f"schedule {changed.schedule_id} is {changed.state}")

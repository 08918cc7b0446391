"""Commands on inbound events."""

from typing import Annotated

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import call, out, show
from minutebook.client import Client
from minutebook.models import EventFollowed, EventSummary, EventView

events = typer.Typer(help="Look at inbound events, and have them handed on again.", no_args_is_help=True)

EventId = Annotated[str, typer.Argument(help="the event's id")]
Key = Annotated[str | None, typer.Option(help="idempotency key: repeated with it, the command is done once")]
LISTED_MAX = 100


@events.command("list")
def list_events(
    source: Annotated[str | None, typer.Option(help="only events of this source")] = None,
    unmatched: Annotated[
        bool | None,
        typer.Option("--unmatched/--matched", help="only those that nothing followed from, or only the others"),
    ] = None,
    limit: Annotated[int, typer.Option(help="how many at most", min=1)] = LISTED_MAX,
) -> None:
    """List inbound events, newest first."""

    async def read(client: Client) -> list[EventSummary]:
        found: list[EventSummary] = []
        async for event in client.events(source=source, unmatched=unmatched):
            found.append(event)
            if len(found) == limit:
                break
        return found

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No events.")
        return
    rows = table("EVENT", "SOURCE", "NAME", "EXTERNAL ID", "CAME", "NOTE")
    for event in found:
        note = event.unmatched or _taken(event) or ("-" if event.state == "routed" else "not routed yet")
        rows.add_row(str(event.event_id), event.source, event.event, event.external_id, moment(event.received_at), note)
    out.print(rows)


@events.command("show")
def show_event(event_id: EventId) -> None:
    """Show an event, and what followed from it."""
    event = call(lambda c: c.event(event_id))
    if not show(event):
        _print_event(event)


def _print_event(event: EventView) -> None:
    out.print(f"[bold]{event.event}[/bold] of {event.source}  {event.event_id}  {event.state}")
    out.print(f"external id {event.external_id}, came {moment(event.received_at)}", markup=False)
    for key, value in event.keys.items():
        out.print(f"  {key}: {value}", markup=False)
    if event.taken_by:
        out.print(_taken(event), markup=False)
    for routing in event.routings:
        by = f" by {routing.by.name}" if routing.by else ""
        out.print(f"{moment(routing.at)} {routing.how}{by}: {_followed(routing)}", markup=False)


def _taken(event: EventSummary) -> str:
    return f"taken by {', '.join(map(str, event.taken_by))}" if event.taken_by else ""


def _followed(followed: EventFollowed) -> str:
    told = [f"started {run.definition_id} {run.run_id}" for run in followed.started]
    told += [f"resumed {run.run_id} at {run.step}" for run in followed.resumed]
    told += [f"skipped {skipped.definition_id}: {skipped.reason}" for skipped in followed.skipped]
    return "; ".join(told) or followed.unmatched or "nothing followed"


@events.command("replay")
def replay(event_id: EventId, key: Key = None) -> None:
    """Route an event again, by what is declared and waits now."""
    routed = call(lambda c: c.replay_event(event_id, idempotency_key=key))
    if not show(routed):
        out.print(_followed(routed), markup=False)


@events.command("deliver")
def deliver(
    event_id: EventId,
    run_id: Annotated[str, typer.Argument(help="the run that is to take it")],
    step: Annotated[str, typer.Argument(help="its waiting event step")],
    key: Key = None,
) -> None:
    """Hand an event to a run's waiting step, whatever that step asks for."""
    routed = call(lambda c: c.deliver_event(event_id, run_id, step, idempotency_key=key))
    if not show(routed):
        out.print(_followed(routed), markup=False)

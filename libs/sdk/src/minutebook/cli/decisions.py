"""Commands on decisions: the inbox, and the one answer."""

from typing import Annotated

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import call, out, show
from minutebook.cli.values import json_value
from minutebook.client import Client
from minutebook.models import InboxItem, TaskItem
from minutebook.models.states import DecisionOutcome


def inbox() -> None:
    """List the decisions that wait for you."""

    async def read(client: Client) -> list[InboxItem]:
        return [item async for item in client.inbox()]

    items = call(read)
    if show(items):
        return
    if not items:
        out.print("No decision waits for you. Manual steps that do are listed by `minutebook tasks`.")
        return
    rows = table("DECISION", "RUN OF", "STEP", "QUESTION", "ROLE", "SINCE", "OUTCOMES")
    for item in items:
        decision = item.decision
        rows.add_row(
            str(decision.decision_id),
            decision.definition_id,
            decision.step,
            decision.title,
            decision.escalated_to or decision.role,
            moment(decision.opened_at),
            " ".join(decision.outcomes),
        )
    out.print(rows)


def tasks() -> None:
    """List the manual steps that wait for you; `runs complete` completes one."""

    async def read(client: Client) -> list[TaskItem]:
        return [item async for item in client.tasks()]

    items = call(read)
    if show(items):
        return
    if not items:
        out.print("No manual step waits for you.")
        return
    rows = table("RUN", "OF", "STEP", "TASK", "ROLE", "SINCE", "UNTIL")
    for item in items:
        rows.add_row(
            str(item.run.run_id),
            item.run.definition_id,
            item.step,
            item.title,
            item.role or "initiator",
            moment(item.opened_at),
            moment(item.until) if item.until else "-",
        )
    out.print(rows)


def decide(
    decision_id: Annotated[str, typer.Argument(help="the decision's id, from `inbox`")],
    outcome: Annotated[DecisionOutcome, typer.Argument(help="the answer")],
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="why, for the record and the redo")] = None,
    revised: Annotated[str | None, typer.Option(help="the artefact as it should be, as JSON or @FILE")] = None,
) -> None:
    """Answer a decision."""
    artifact = json_value("--revised", revised)
    accepted = call(lambda c: c.decide(decision_id, outcome, comment=comment, revised_artifact=artifact))
    if not show(accepted):
        out.print(f"{outcome} recorded; run {accepted.run_id} goes on")

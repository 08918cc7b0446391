"""Commands on decisions: the inbox, and the one answer."""

from typing import Annotated

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import call, out, show
from minutebook.cli.values import json_value
from minutebook.client import Client
from minutebook.models import InboxItem
from minutebook.models.states import DecisionOutcome


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
    rows = table("DECISION", "RUN OF", "STEP", "ROLE", "SINCE", "OUTCOMES")
    for item in items:
        decision = item.decision
        rows.add_row(
            str(decision.decision_id),
            decision.definition_id,
            decision.step,
            decision.role,
            moment(decision.opened_at),
            " ".join(decision.outcomes),
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

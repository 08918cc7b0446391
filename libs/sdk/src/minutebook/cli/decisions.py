"""Commands on decisions: the inbox, what one asks, and the answer."""

import json
from collections.abc import Iterable
from functools import partial
from typing import Annotated, Any

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import call, out, show
from minutebook.cli.values import json_value, request_of
from minutebook.client import Client
from minutebook.models import (
    DecisionAnswerView,
    DecisionView,
    InboxItem,
    Person,
    QuorumView,
    ReassignRequest,
    TaskItem,
    VoteView,
)
from minutebook.models.states import DecisionOutcome

decisions = typer.Typer(help="Show and reassign decisions; `decide` answers one.", no_args_is_help=True)

Decision = Annotated[str, typer.Argument(help="the decision's id, from `inbox`")]


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
    rows = table("DECISION", "RUN OF", "STEP", "QUESTION", "ROLE", "SINCE", "VOTES", "OUTCOMES")
    for item in items:
        decision = item.decision
        rows.add_row(
            str(decision.decision_id),
            decision.definition_id,
            decision.step,
            decision.question or decision.title,
            decision.escalated_to or decision.role,
            moment(decision.opened_at),
            f"{decision.approvals} of {decision.needed}" if decision.needed > 1 else "-",
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
    decision_id: Decision,
    outcome: Annotated[DecisionOutcome, typer.Argument(help="the answer; `answer` to a question")],
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="why, for the record and the redo")] = None,
    revised: Annotated[str | None, typer.Option(help="the artefact as it should be, as JSON or @FILE")] = None,
    answer: Annotated[str | None, typer.Option(help="the answer to a question, as JSON, @FILE or plain text")] = None,
    shown: Annotated[str | None, typer.Option(help="digest of what you looked at, from `decisions show`")] = None,
) -> None:
    """Answer a decision, or vote where a quorum is asked for."""
    artifact, said = json_value("--revised", revised), _answer_of(answer)
    accepted = call(
        lambda c: c.decide(decision_id, outcome, comment=comment, revised_artifact=artifact, answer=said, shown=shown)
    )
    if show(accepted):
        return
    if accepted.state == "answered":
        out.print(f"{accepted.outcome} recorded; run {accepted.run_id} goes on")
    elif accepted.revised and not accepted.approvals:
        out.print("the revision is recorded, and has to be approved by somebody else")
    else:
        out.print(f"{outcome} recorded as a vote: {accepted.approvals} of {accepted.needed} approvals")


def _answer_of(text: str | None) -> Any:
    """An object as JSON or in a file; any other text is the answer to a question that has no form."""
    if text is None or text.startswith(("{", "@")):
        return json_value("--answer", text)
    return {"answer": text}


@decisions.command("show")
def show_decision(decision_id: Decision) -> None:
    """Show what is asked, what has been said of it, and what it differs in from what was shown before."""
    found = call(lambda c: c.decision(decision_id))
    if not show(found):
        _tell(found)


@decisions.command("reassign")
def reassign(
    decision_id: Decision,
    to: Annotated[str, typer.Option(help="who is to answer, by email or id")],
    from_: Annotated[
        str | None, typer.Option("--from", help="in whose place; without it beside those who may answer")
    ] = None,
    reason: Annotated[str | None, typer.Option("--reason", "-m", help="why, for the record")] = None,
) -> None:
    """Let a person answer in the place of another. For administrators."""
    request = request_of(ReassignRequest, to_user=to, from_user=from_, reason=reason)
    changed = call(lambda c: c.reassign(decision_id, request))
    if not show(changed):
        out.print(f"{to} may answer {changed.step}" + (f" in the place of {from_}" if from_ else ""), markup=False)


def _tell(found: DecisionView) -> None:
    say = partial(out.print, markup=False)
    say(f"{found.title}: {found.state}, for {found.escalated_to or found.role}, since {moment(found.opened_at)}")
    if found.question:
        say(f"asks: {found.question}")
    if found.due_at:
        say(f"due: {moment(found.due_at)}")
    if found.until:
        say(f"times out: {moment(found.until)}")
    say(f"answers: {' '.join(found.outcomes)}")
    if found.not_for:
        say(f"not for: {', '.join(found.not_for)}")
    if found.quorum:
        _tell_quorum(found.quorum, found.approvals, open_=found.state == "open")
    for vote in found.votes:
        say(f"  {moment(vote.at)} {_who(vote)} {vote.outcome}" + (f": {vote.comment}" if vote.comment else ""))
    if found.answer:
        comment = f": {found.answer.comment}" if found.answer.comment else ""
        say(f"answered: {_who(found.answer)} {found.answer.outcome} at {moment(found.answer.at)}{comment}")
    if found.withdrawn_because:
        say(f"withdrawn: {found.withdrawn_because}")
    _tell_content(found)


def _tell_quorum(quorum: QuorumView, approvals: int, *, open_: bool) -> None:
    veto = "; one refusal ends it" if quorum.veto == "any" else ""
    out.print(f"approvals: {approvals} of {quorum.need}{veto}")
    for seat in quorum.seats:
        need = f", {seat.need} of them" if seat.need else ""
        still = f"; may still vote: {_names(seat.may_answer)}" if open_ else ""
        out.print(f"  {seat.role}{need}: {_names(seat.voters)}{still}", markup=False)


def _names(people: Iterable[Person]) -> str:
    return " ".join(person.email or str(person.id) for person in people) or "nobody"


def _tell_content(found: DecisionView) -> None:
    if found.previous:
        out.print(f"asked again: {found.previous.by.name} approved at {moment(found.previous.at)}", markup=False)
        if not found.differences:
            out.print("nothing has changed since")
    for change in found.differences:
        before, after = json.dumps(change.before), json.dumps(change.after)
        out.print(f"  {change.kind} {change.path}: {before} -> {after}", markup=False)
    content = found.revised_artifact if found.revised_artifact is not None else found.artifact
    for name, value in (("form", found.form), ("answer", found.answer and found.answer.value), ("shown", content)):
        if value is not None:
            out.print(f"{name}:")
            out.print_json(json.dumps(value))
    if found.shown_digest:
        out.print(f"digest: {found.shown_digest}")


def _who(said: VoteView | DecisionAnswerView) -> str:
    return said.by.name + (f" for {said.on_behalf_of.email}" if said.on_behalf_of else "")

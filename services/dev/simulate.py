"""What `minutebook definitions simulate` does: it reads files, walks a definition in memory and prints what would be.

Only `--run` talks to a server, to fetch what a real run's steps handed off and what people answered.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, cast, get_args

import typer

from contracts.base import JsonObject, JsonValue
from contracts.errors import MinutebookError
from libs.language.loader import load_folder
from libs.language.model import Bundle
from minutebook.cli.printing import money
from minutebook.cli.session import Exit, call, explained, fail
from minutebook.client import Client
from minutebook.folder import read_folder
from minutebook.models.states import DecisionOutcome
from services.dev.options import DEFINITIONS
from services.dev.simulation import Outcome, Script, simulate

ARGUMENTS_CHARS_MAX: Final = 2_000

Answers = dict[str, tuple[DecisionOutcome, ...]]


def run_simulation(
    target: str,
    *,
    workflow: str | None,
    variant: str | None,
    context: JsonObject,
    outputs: Path | None,
    recorded: str | None,
    answers: list[str],
    at: datetime | None,
    as_json: bool,
) -> None:
    """Simulate a workflow of a folder, or a shipped one by its id, and print how it went."""
    known = Script() if recorded is None else _of_run(recorded)
    script = Script(
        context={**known.context, **context},
        variant=variant or known.variant,
        outputs={**known.outputs, **_outputs(outputs)},
        answers={**known.answers, **_answers(answers)},
    )
    try:
        outcome = simulate(_bundle(target, workflow), script, at_=at or datetime.now(UTC))
    except MinutebookError as error:
        for item in error.errors:
            where = f"{item.file}:{item.line or 1}: " if item.file else ""
            typer.echo(f"{where}{item.path}: {item.message}", err=True)
        fail(f"{error.message} ({error.code})")
    if as_json:
        print(json.dumps(_as_json(outcome)))
    else:
        _tell(outcome)
    raise typer.Exit(Exit.OK if outcome.ok else Exit.RUN_FAILED)


def _bundle(target: str, workflow: str | None) -> Bundle:
    """The workflow: the one of that id in a folder, the only one there, or a shipped one."""
    folder, wanted = Path(target), workflow
    if not folder.is_dir():
        folder, wanted = DEFINITIONS, workflow or target
    with explained():
        found = {bundle.definition.id: bundle for bundle in load_folder(read_folder(folder)).workflows}
    if wanted is None and len(found) == 1:
        return next(iter(found.values()))
    if wanted not in found:
        there = ", ".join(sorted(found)) or "none"
        missing = f"no workflow {wanted!r}" if wanted else "more than one workflow; name one with --workflow"
        fail(f"{folder} has {missing}: there are {there}", Exit.NOT_FOUND if wanted else Exit.USAGE)
    return found[wanted]


def _outputs(path: Path | None) -> dict[str, JsonValue]:
    """What steps hand off, from a JSON file: step → output."""
    if path is None:
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        fail(f"--outputs takes a JSON file of step → output: {error}", Exit.USAGE)
    if not isinstance(value, dict):
        fail(f"{path} holds no JSON object of step → output", Exit.USAGE)
    return value


def _answers(given: list[str]) -> Answers:
    """STEP=OUTCOME, repeated for a step that is decided on again."""
    found: defaultdict[str, tuple[DecisionOutcome, ...]] = defaultdict(tuple)
    for text in given:
        step, _, outcome = text.partition("=")
        if outcome not in get_args(DecisionOutcome):
            fail(
                f"--answer takes STEP=OUTCOME, one of {', '.join(get_args(DecisionOutcome))}; not {text!r}", Exit.USAGE
            )
        found[step] += (cast(DecisionOutcome, outcome),)
    return dict(found)


def _of_run(run_id: str) -> Script:
    """A run's context, what its steps handed off last, as they proposed it, and what people answered, in order."""

    async def read(client: Client) -> Script:
        run = await client.run(run_id)
        handed_off = [step.key for step in run.steps if step.artifact_state is not None and step.kind != "parallel"]
        outputs = {key: (await client.artifact(run_id, key)).proposed for key in handed_off}
        step_of: dict[str, str] = {}
        answers: defaultdict[str, tuple[DecisionOutcome, ...]] = defaultdict(tuple)
        async for entry in client.history(run_id):
            stream = str(entry.stream_id)
            if entry.type == "decision.opened":
                step_of[stream] = str(entry.data["step"])
            elif entry.type == "decision.answered":
                answers[step_of[stream]] += (cast(DecisionOutcome, entry.data["outcome"]),)
        return Script(context=run.context, variant=run.variant, outputs=outputs, answers=answers)

    return call(read)


def _tell(outcome: Outcome) -> None:
    for told in outcome.path:
        print(f"{'+' + str(told.after).split('.')[0]:>10}  {told.text}")
    if outcome.decisions:
        print("\nDecisions")
        for answered in outcome.decisions:
            print(f"  {answered.step}: {answered.role} → {answered.outcome}")
    if outcome.waits:
        print("\nWaits")
        for waited in outcome.waits:
            print(f"  {waited.step}: {waited.on}" + (f" ({waited.seconds:g} s)" if waited.seconds else ""))
    if outcome.writes:
        print("\nWould be written, once each")
        for write in outcome.writes:
            print(f"  {write.step}: {write.system}.{write.tool} as {write.key}")
            print(f"    {_short(json.dumps(write.arguments, ensure_ascii=False))}")
    print(f"\n{_cost(outcome)}")
    print(f"{outcome.state}{f', {outcome.outcome}' if outcome.outcome else ''}", end="")
    print(f": {outcome.reason}" if outcome.reason else "")


def _cost(outcome: Outcome) -> str:
    unpriced = f"; without a price: {', '.join(sorted(outcome.unpriced))}" if outcome.unpriced else ""
    if not outcome.cost_microdollars and not unpriced:
        return "No step names a model, so nothing is known of the cost"
    return f"Costs about {money(outcome.cost_microdollars)}, by the length of prompts and outputs alone{unpriced}"


def _short(text: str) -> str:
    return text if len(text) <= ARGUMENTS_CHARS_MAX else text[: ARGUMENTS_CHARS_MAX - 1] + "…"


def _as_json(outcome: Outcome) -> Mapping[str, Any]:
    return {
        "ok": outcome.ok,
        "state": outcome.state,
        "outcome": outcome.outcome,
        "reason": outcome.reason,
        "path": [{"after_seconds": told.after.total_seconds(), "text": told.text} for told in outcome.path],
        "decisions": [asdict(answered) for answered in outcome.decisions],
        "waits": [asdict(waited) for waited in outcome.waits],
        "writes": [asdict(write) for write in outcome.writes],
        "took_seconds": outcome.took.total_seconds(),
        "cost_microdollars": outcome.cost_microdollars,
        "unpriced": sorted(outcome.unpriced),
    }


__all__ = ["run_simulation"]

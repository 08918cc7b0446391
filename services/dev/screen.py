"""What a person sees of a demo: a live picture on a terminal, plain lines elsewhere, the record at the end."""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from minutebook.cli.printing import who_or_what
from minutebook.models import RunView, StepView, WaitingForTurn
from services.dev.demo import Result

_MARKS: Final = {
    "succeeded": ("✓", "green"),
    "failed": ("✗", "red"),
    "cancelled": ("–", "dim"),
    "queued": ("●", "cyan"),
    "waiting": ("◆", "yellow"),
    "writing": ("▶", "magenta"),
    "retrying": ("↻", "yellow"),
    "pending": ("·", "dim"),
}


def dollars(microdollars: int) -> str:
    """Money as people read it."""
    return f"${microdollars / 1_000_000:.4f}"


class Screen:
    """Shows a run while it moves. On a terminal one picture that changes, elsewhere a line for each change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._seen: dict[str, str] = {}

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def progress(self, what: str) -> None:
        """Say what is being done before there is a run."""
        if self._live is not None:
            self._live.update(Text(f"{what} …", style="dim"), refresh=True)
        else:
            self._console.print(what)

    def show(self, run: RunView, seconds: float) -> None:
        """Show where the run stands."""
        if self._live is not None:
            self._live.update(picture(run, seconds), refresh=True)
            return
        for step in run.steps:
            line = f"{step.state}" + (f" (round {step.round})" if step.round > 1 else "")
            if step.state != "pending" and self._seen.get(step.key) != line:
                self._seen[step.key] = line
                self._plain(f"{step.stage}: {step.key} {line}", run, seconds)
        line = run.state + (", waits for " + ", ".join(map(who_or_what, run.waiting_for)) if run.waiting_for else "")
        if self._seen.get("") != line:
            self._seen[""] = line
            self._plain(f"run {line}", run, seconds)

    def _plain(self, text: str, run: RunView, seconds: float) -> None:
        self._console.print(f"{seconds:6.1f} s  {dollars(run.cost_microdollars)}  {text}", markup=False)


def picture(run: RunView, seconds: float) -> Group:
    """The run as stages and steps, with who is waited for, what it cost so far and how long it took."""
    table = Table(box=None, pad_edge=False, show_header=False)
    stage = None
    for step in run.steps:
        mark, style = _MARKS[step.state]
        shown = step.stage if step.stage != stage else ""
        stage = step.stage
        table.add_row(Text(shown, style="bold"), Text(f"{mark} {_indent(step)}", style=style), _about(step, run))
    title = Text.assemble((run.definition_name, "bold"), f"  {run.run_id}  ", (run.state, "cyan"))
    foot = Text(f"cost {dollars(run.cost_microdollars)} · {seconds:.1f} s", style="dim")
    return Group(title, table, foot)


def _indent(step: StepView) -> str:
    return ("  " if "." in step.key else "") + step.key.split(".")[-1]


def _about(step: StepView, run: RunView) -> Text:
    parts = [
        f"waits for {who_or_what(waiting)}"
        for waiting in run.waiting_for
        if not isinstance(waiting, WaitingForTurn) and waiting.step == step.key
    ]
    if step.round > 1:
        parts.append(f"round {step.round}")
    if step.cost_microdollars:
        parts.append(dollars(step.cost_microdollars))
    return Text(" · ".join(parts), style="dim")


def tell(console: Console, result: Result, say: Callable[[str], None]) -> None:
    """Print how it ended: outcome, history in words, cost per step, the effect, and whether the record holds."""
    run = result.run
    say(f"\n{run.definition_name}: {run.state}, {run.outcome or run.reason} after {result.seconds:.1f} s\n")
    say("What happened")
    for entry in result.history:
        say(f"  {entry.at.astimezone():%H:%M:%S.%f}"[:-3] + f"  {entry.text}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("Step", "Kind", "State", "Attempts", "Cost"):
        table.add_column(column, justify="right" if column in ("Attempts", "Cost") else "left")
    for step in result.as_json()["steps"]:
        table.add_row(
            step["key"], step["kind"], step["state"], str(step["attempts"]), dollars(step["cost_microdollars"])
        )
    table.add_row("", "", "", "", dollars(run.cost_microdollars), style="bold")
    say("\nWhat it cost")
    console.print(table)
    say("\nWhat was written outside")
    for effect in run.effects:
        say(f"  {effect.system}.{effect.tool} {effect.state}: {effect.reference} (key {effect.key})")
    say(f"  calls that reached the target: {len(result.calls)}")
    verdict = result.verification
    say(
        f"\nThe record: {verdict.events} facts in {verdict.streams} streams; chain and head rows "
        + ("verify." if verdict.ok else "DO NOT verify:")
    )
    for difference in verdict.differences:
        say(f"  {difference.category} {difference.stream_id} {difference.kind}: {difference.detail}")

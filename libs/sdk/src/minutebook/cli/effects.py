"""Commands on effects: what was written to the outside, and verdicts on what is in doubt."""

import json
from typing import Annotated, Literal, cast

import typer

from minutebook.cli.printing import moment, table
from minutebook.cli.session import call, err, out, show
from minutebook.client import Client
from minutebook.models import EffectSettled, EffectView
from minutebook.models.states import EffectState, SettleVerdict

effects = typer.Typer(help="Look at writes to the outside, and settle those in doubt.", no_args_is_help=True)

EffectId = Annotated[str, typer.Argument(help="the effect's id, from `effects list`")]


@effects.command("list")
def list_effects(
    state: Annotated[EffectState | None, typer.Option(help="only those, such as in_doubt")] = None,
) -> None:
    """List the writes of runs that you may see."""

    async def read(client: Client) -> list[EffectView]:
        return [item async for item in client.effects(state=state)]

    found = call(read)
    if show(found):
        return
    if not found:
        out.print("No effects." if state is None else f"No effect is {state}.")
        return
    rows = table("EFFECT", "RUN", "STEP", "TOOL", "KEY", "STATE", "REFERENCE", "SINCE")
    for item in found:
        key = item.key if item.kind == "write" else f"link of {item.key}"
        rows.add_row(
            str(item.effect_id),
            str(item.run_id),
            item.step,
            f"{item.system}.{item.tool}",
            key,
            item.state,
            item.reference or "-",
            moment(item.changed_at),
        )
    out.print(rows)


@effects.command("show")
def show_effect(effect_id: EffectId) -> None:
    """Show a write with its arguments and what became of it."""
    effect = call(lambda client: client.effect(effect_id))
    if show(effect):
        return
    link = f", a back-link of {effect.of}" if effect.of else ""
    out.print(
        f"{effect.system}.{effect.tool} of {effect.step} in run {effect.run_id}: {effect.state}{link}", markup=False
    )
    for name, value in (
        ("key", effect.key),
        ("reference", effect.reference),
        ("message", effect.message),
        ("arguments", json.dumps(effect.arguments, ensure_ascii=False)),
        ("may be settled from", moment(effect.over_at) if effect.state == "in_doubt" and effect.over_at else None),
        ("in doubt", _doubt(effect) if effect.state == "in_doubt" else None),
        ("looked for", f"{effect.looks} times" if effect.looks else None),
    ):
        if value is not None:
            out.print(f"  {name}: {value}", markup=False)
    if effect.settled is not None:
        settled = effect.settled
        comment = f": {settled.comment}" if settled.comment else ""
        out.print(f"  settled as {settled.verdict} by {settled.by.name} at {moment(settled.at)}{comment}", markup=False)


@effects.command("settle")
def settle(
    effect_id: EffectId,
    verdict: Annotated[
        Literal["landed", "not-landed", "try-again"],
        typer.Argument(help="the record is there; it is not, and the step fails; it is not, and is called once more"),
    ],
    reference: Annotated[str | None, typer.Option(help="what the target calls the record, with `landed`")] = None,
    comment: Annotated[str | None, typer.Option("--comment", "-m", help="why, for the record")] = None,
    arm: Annotated[
        int | None,
        typer.Option(help="of the call that you looked for, from `effects show`; without it the one in doubt now"),
    ] = None,
) -> None:
    """Settle a write in doubt, by what you saw at its target."""
    said = cast(SettleVerdict, verdict.replace("-", "_"))

    async def judge(client: Client) -> EffectSettled:
        on = arm
        if on is None:
            effect = await client.effect(effect_id)
            on = effect.arm
            if effect.state == "in_doubt":
                err.print(f"in doubt of {effect.system}.{effect.tool} at {effect.step}: {_doubt(effect)}", markup=False)
        return await client.settle_effect(effect_id, said, arm=on, reference=reference, comment=comment)

    _tell(call(judge))


@effects.command("probe")
def probe(effect_id: EffectId) -> None:
    """Ask the target now whether a write in doubt is there."""
    _tell(call(lambda client: client.probe_effect(effect_id)))


def _doubt(effect: EffectView) -> str:
    """Which call a verdict would be on."""
    return f"the call of arm {effect.arm}, since {moment(effect.doubted_at)}"


def _tell(settled: EffectSettled) -> None:
    if show(settled):
        return
    reference = f" as {settled.reference}" if settled.reference else ""
    said = f"; {settled.message}" if settled.message else ""
    out.print(f"effect {settled.effect_id} is {settled.state}{reference}{said}", markup=False)

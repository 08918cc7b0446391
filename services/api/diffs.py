"""Two versions of a workflow side by side, and who stands where they differ."""

from typing import Final

from contracts.base import Principal
from libs.domain.lifecycle import RUN_OPEN
from libs.language import diff as language
from minutebook.models import DefinitionDiff, FieldChange, StepChange, TouchedRun
from services.api.definition_views import named_version
from services.api.door import Door
from services.api.run_lists import RunFilter

LOOKED_AT_MAX: Final = 200
"""Open runs whose place is looked at, the newest ones."""


async def diff(
    door: Door, caller: Principal, definition_id: str, *, before: str | None, after: str | None
) -> DefinitionDiff:
    """Compare two versions, by default the one that new runs take with the one that was declared last.

    Raises:
        contracts.errors.Rejected: 404 and 422, as `named_version` says.
    """
    versions = await door.definitions.versions(caller, definition_id)
    old = named_version(versions, before) if before is not None else versions.current
    new = named_version(versions, after) if after is not None else versions.declared
    difference = language.compare(
        await door.definitions.bundle(caller.tenant_group, old.bundle),
        await door.definitions.bundle(caller.tenant_group, new.bundle),
    )
    open_ = RunFilter(definition_id=definition_id, hash=old.hash, states=RUN_OPEN)
    return DefinitionDiff(
        definition_id=definition_id,
        before=old.hash,
        after=new.hash,
        settings=tuple(_field(change) for change in difference.settings),
        steps=tuple(
            StepChange(key=step.key, kind=step.kind, fields=tuple(map(_field, step.fields)))
            for step in difference.steps
        ),
        open_runs=await door.queries.count_runs(caller, open_),
        touched=await _touched(door, caller, open_, difference),
    )


async def _touched(
    door: Door, caller: Principal, open_: RunFilter, difference: language.Difference
) -> tuple[TouchedRun, ...]:
    """Runs that stand at a step which is different. A branch or an item stands for its step as well."""
    differing = {step.key for step in difference.steps if step.kind != "added"}
    if not differing:
        return ()
    runs = (await door.queries.runs(caller, open_, limit=LOOKED_AT_MAX)).items
    standing = await door.views.open_steps(caller, [run.run_id for run in runs])
    found = []
    for run in runs:
        places = {place for key in standing.get(run.run_id, ()) for place in (key, key.split(".")[0])}
        if places & differing:
            found.append(TouchedRun(run=run, steps=tuple(sorted(places & differing))))
    return tuple(found)


def _field(change: language.FieldChange) -> FieldChange:
    return FieldChange(path=change.path, before=change.before, after=change.after)

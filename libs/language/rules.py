"""What must hold between the parts of a workflow, beyond the type of each. `step_rules` has those of single steps.

A rule judges only what passed the checks of its structure, so that one slip is told once.
"""

from collections.abc import Iterator
from typing import Final

from libs.language import nodes
from libs.language.outline import Outline, path_objection
from libs.language.shapes import Checked
from libs.language.step_rules import Declared, check_step, source_objection
from libs.language.templates import check_concurrency_key

STEPS_MAX: Final = 200
"""Steps and branches of a workflow: a plan looks at all of them, and so does the page of a run."""


def check_workflow(workflow: Checked, *, directory: str, declared: Declared) -> Outline:
    """Note every broken rule of a workflow. Returns the order of its steps."""
    _check_id(workflow, directory)
    _check_triggers(workflow, declared)
    _check_roles(workflow)
    _check_context(workflow)
    if not _check_keys(workflow):
        return Outline(())
    if concurrency := workflow.get("concurrency"):
        check_concurrency_key(concurrency)
    outline = Outline.of(workflow)
    _check_entries(workflow, outline)
    for position, step in enumerate(outline.steps):
        check_step(step, position, outline, declared)
    return outline


def _check_id(workflow: Checked, directory: str) -> None:
    id_ = workflow.get("id")
    if id_ is not None and id_ != directory:
        workflow.refuse(
            "id", f"`{id_}` is not the name of its directory; make it `{directory}`, or rename the directory"
        )


def _check_triggers(workflow: Checked, declared: Declared) -> None:
    by_itself = [trigger for trigger in workflow.get("triggers") or () if trigger.get("kind") in ("event", "schedule")]
    if by_itself and "run_as" not in workflow.given:
        kind = by_itself[0].get("kind")
        article = "an" if kind == "event" else "a"
        workflow.refuse(
            "run_as", f"required with {article} {kind} trigger: the email of the service user that owns its runs"
        )
    lines: dict[tuple[str, ...], int] = {}
    for trigger in by_itself:
        if trigger.get("kind") == "event":
            _check_event_trigger(trigger, declared)
        else:
            _check_schedule(trigger, lines)
            _check_scheduled_context(workflow, trigger)


def _check_event_trigger(trigger: Checked, declared: Declared) -> None:
    match = trigger.at("match").node
    if "match" in trigger.values and isinstance(match, nodes.Mapping) and not match.entries:
        trigger.refuse("match", "must not be empty, or every event of the source starts a run")
    if objection := source_objection(trigger.get("source"), declared):
        trigger.refuse("source", objection)


def _check_schedule(trigger: Checked, lines: dict[tuple[str, ...], int]) -> None:
    """Exactly one of `cron` and `every`, each with the keys that mean something beside it; no line twice."""
    if "cron" not in trigger.given and "every" not in trigger.given:
        trigger.refuse("cron", 'required and missing: give `cron`, such as "0 0 7 * * 1", or `every`, such as 6h')
    elif {"cron", "every"} <= trigger.given:
        trigger.refuse("every", "there is `cron` already; give one of the two")
    elif "every" in trigger.given:
        for key in sorted(trigger.given & {"timezone", "overlap"}):
            trigger.refuse(key, "means nothing beside `every`, which counts from the end of the run before; remove it")
    line = tuple(str(trigger.get(key)) for key in ("cron", "every", "timezone"))
    if line in lines:
        trigger.place.refuse(f"the same schedule stands already in line {lines[line]}; it would start one run, not two")
    elif trigger.get("cron") or trigger.get("every"):
        lines[line] = trigger.place.line


def _check_scheduled_context(workflow: Checked, trigger: Checked) -> None:
    """Nobody gives a scheduled run its context: what is required has to be a default."""
    context = workflow.get("context")
    required: tuple[str, ...] = (context.get("required") or ()) if context else ()
    variants = workflow.get("variants")
    defaults = variants.get("default") if isinstance(variants, dict) else None
    known = {path.split(".")[1] for path in defaults or () if path.startswith("context.")}
    for key in required:
        if key.split(".")[0] not in known:
            trigger.place.refuse(
                f"context.required has `{key}`, which nobody gives a scheduled run, so it would never start; set "
                f"`context.{key}` in variants.default, or take `{key}` out of context.required"
            )


def _check_roles(workflow: Checked) -> None:
    for name, binding in (workflow.get("roles") or {}).items():
        refused = binding.given - binding.values.keys()
        if not (binding.get("roles") or binding.get("groups") or binding.get("project") or refused):
            binding.place.refuse(f"role `{name}` is bound to nobody; give it roles, groups or `project: true`")


def _check_context(workflow: Checked) -> None:
    context = workflow.get("context")
    for key in ("required", "scope"):
        listed = (context.get(key) or ()) if context else ()
        for twice in sorted({one for one in listed if listed.count(one) > 1}):
            context.refuse(key, f"`{twice}` is listed twice")


def _check_keys(workflow: Checked) -> bool:
    """Stages are unique among stages; steps and branches among each other. False when there are too many to judge."""
    stages = workflow.get("stages") or ()
    steps = tuple(_steps_and_branches(stages))
    if len(steps) > STEPS_MAX:
        workflow.refuse("stages", f"{len(steps)} steps and branches; at most {STEPS_MAX} are read")
        return False
    _check_unique(stages, "stage")
    _check_unique(steps, "step")
    return True


def _steps_and_branches(stages: tuple[Checked, ...]) -> Iterator[Checked]:
    for stage in stages:
        for step in stage.get("steps") or ():
            yield step
            if step.get("kind") == "parallel":
                yield from step.get("parallel") or ()


def _check_unique(named: tuple[Checked, ...], what: str) -> None:
    seen: dict[str, int] = {}
    for item in named:
        key = item.get("key")
        if key in seen:
            item.refuse("key", f"`{key}` is the key of another {what} already, in line {seen[key]}; each needs its own")
        elif key:
            seen[key] = item.at("key").line


def _check_entries(workflow: Checked, outline: Outline) -> None:
    position = 0
    for stage in workflow.get("stages") or ():
        entry = stage.get("entry")
        for path in (entry.get("requires") or ()) if entry else ():
            if objection := path_objection(path, position, outline):
                entry.refuse("requires", objection)
        position += len(stage.get("steps") or ())

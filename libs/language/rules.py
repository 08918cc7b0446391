"""What must hold between the parts of a workflow, beyond the type of each.

A rule judges only what passed the checks of its structure, so that one slip is told once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from libs.language import nodes
from libs.language.expressions import ROOTS as GATE_ROOTS
from libs.language.expressions import ExpressionError, parse
from libs.language.outline import PRODUCERS, Outline, offers
from libs.language.problems import hint
from libs.language.shapes import Checked, Place
from libs.language.templates import check_args, check_effect_key


@dataclass(frozen=True, slots=True)
class Declared:
    """What the folder declares beside workflows, as far as it is known.

    None where it declares nothing of the kind, or where what declares it has problems of its own.
    """

    sources: frozenset[str] | None = None
    tools: Mapping[str, frozenset[str] | None] | None = None


def check_workflow(workflow: Checked, *, directory: str, declared: Declared) -> Outline:
    """Note every broken rule of a workflow. Returns the order of its steps."""
    _check_id(workflow, directory)
    _check_triggers(workflow, declared)
    _check_roles(workflow)
    _check_keys(workflow)
    outline = Outline.of(workflow)
    _check_entries(workflow, outline)
    for position, step in enumerate(outline.steps):
        match step.get("kind"):
            case "agent":
                _check_agent(step, position, outline)
            case "decision":
                _check_decision(step, position, outline)
            case "write":
                _check_write(step, position, outline, declared)
            case _:
                pass
    return outline


def _check_id(workflow: Checked, directory: str) -> None:
    id_ = workflow.get("id")
    if id_ is not None and id_ != directory:
        workflow.refuse(
            "id", f"`{id_}` is not the name of its directory; make it `{directory}`, or rename the directory"
        )


def _check_triggers(workflow: Checked, declared: Declared) -> None:
    events = [trigger for trigger in workflow.get("triggers") or () if trigger.get("kind") == "event"]
    if events and "run_as" not in workflow.given:
        workflow.refuse("run_as", "required with an event trigger: the email of the service user that owns its runs")
    for trigger in events:
        source = trigger.get("source")
        match = trigger.at("match").node
        if "match" in trigger.values and isinstance(match, nodes.Mapping) and not match.entries:
            trigger.refuse("match", "must not be empty, or every event of the source starts a run")
        if source and declared.sources is not None and source not in declared.sources:
            trigger.refuse("source", f"`{source}` is not declared in sources.yaml{hint(source, declared.sources)}")


def _check_roles(workflow: Checked) -> None:
    for name, binding in (workflow.get("roles") or {}).items():
        refused = binding.given - binding.values.keys()
        if not (binding.get("roles") or binding.get("groups") or refused):
            binding.place.refuse(f"role `{name}` is bound to nobody; give it roles or groups")


def _check_keys(workflow: Checked) -> None:
    """Stages are unique among stages; steps and branches among each other."""
    stages = workflow.get("stages") or ()
    _check_unique(stages, "stage")
    _check_unique(_steps_and_branches(stages), "step")


def _steps_and_branches(stages: tuple[Checked, ...]) -> Iterator[Checked]:
    for stage in stages:
        for step in stage.get("steps") or ():
            yield step
            if step.get("kind") == "parallel":
                yield from step.get("parallel") or ()


def _check_unique(named: Iterator[Checked] | tuple[Checked, ...], what: str) -> None:
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
            root, _, rest = path.partition(".")
            objection = (
                _path_objection(root, rest, position, outline)
                if root in GATE_ROOTS
                else f"`{path}` must start with context, state or steps"
            )
            if objection:
                entry.refuse("requires", objection)
        position += len(stage.get("steps") or ())


def _check_agent(step: Checked, position: int, outline: Outline) -> None:
    gate, loop_to = step.get("gate"), step.get("loop_to")
    if gate is not None:
        _check_gate(step.at("gate"), gate, position, outline)
    if loop_to is not None and (objection := outline.objection(loop_to, position)):
        step.refuse("loop_to", objection)
    for key, needed in (("loop_to", "gate"), ("loop_to", "loop_max"), ("loop_max", "loop_to"), ("loop_max", "gate")):
        if key in step.given and needed not in step.given:
            step.refuse(key, f"needs `{needed}` beside it: a refused gate loops to `loop_to`, at most `loop_max` times")


def _check_gate(place: Place, gate: str, position: int, outline: Outline) -> None:
    try:
        expression = parse(gate)
    except ExpressionError as error:
        place.refuse(f"not an expression: {error}")
        return
    for path in expression.paths:
        root, _, rest = path.partition(".")
        if root in GATE_ROOTS and (objection := _path_objection(root, rest, position, outline)):
            place.refuse(objection)


def _path_objection(root: str, rest: str, position: int, outline: Outline) -> str | None:
    """What is wrong with a path below `context`, `state` or `steps`, seen from a position."""
    if not rest:
        return f"`{root}` alone says nothing; name what is meant, such as `{root}.{_EXAMPLES[root]}`"
    if root == "state" and rest != "branch":
        return f"there is no `state.{rest}`; known: state.branch"
    if root == "steps":
        return outline.objection(rest.partition(".")[0], position, PRODUCERS)
    return None


_EXAMPLES = {"context": "jira_key", "state": "branch", "steps": "design"}


def _check_decision(step: Checked, position: int, outline: Outline) -> None:
    artifact = step.get("artifact")
    if artifact is not None and (objection := outline.objection(artifact, position, PRODUCERS)):
        step.refuse("artifact", objection)
    outcomes = step.get("outcomes")
    if outcomes is not None and len(set(outcomes)) < len(outcomes):
        step.refuse("outcomes", "an outcome is listed twice")
    for outcome, target in (step.get("on") or {}).items():
        place = step.at("on")
        if isinstance(place.node, nodes.Mapping):
            place = place.child(outcome, place.node.entries[outcome], place.node.lines[outcome])
        if outcome != "request_changes":
            place.refuse(f"`{outcome}` cannot jump; only request_changes can")
        elif not offers(step, outcome):
            place.refuse("the decision does not offer request_changes; add it to `outcomes`, or remove this")
        elif objection := outline.objection(target, position):
            place.refuse(objection)
    if offers(step, "request_changes") and not outline.before(position, *PRODUCERS):
        step.refuse(
            "outcomes",
            "request_changes has no earlier agent step to redo; put one before, or list the outcomes without it",
        )


def _check_write(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    _check_approval(step, position, outline)
    _check_tool(step, declared)
    if args_from := step.get("args_from"):
        source, _, rest = args_from.partition(".")
        if rest.partition(".")[0] != "output":
            step.refuse("args_from", f"`{args_from}` must be <step>.output.<path>, such as review.output.pull_request")
        elif objection := outline.objection(source, position, PRODUCERS):
            step.refuse("args_from", objection)
    check_args(step)
    check_effect_key(step)


def _check_approval(step: Checked, position: int, outline: Outline) -> None:
    named = step.get("requires_decision")
    if named is None and "requires_decision" in step.given:
        return
    if named is not None and (objection := outline.objection(named, position, ("decision",))):
        step.refuse("requires_decision", objection)
        return
    key = outline.decision_for(step, position)
    if key is None:
        if not outline.before(position, "decision"):
            step.refuse("requires_decision", "no decision comes before this write; put one that can approve it before")
        return
    found = outline.position(key)
    if found is not None and not offers(outline.steps[found], "approve"):
        step.refuse("requires_decision", f"decision `{key}` does not offer approve, so this write could never happen")


def _check_tool(step: Checked, declared: Declared) -> None:
    system, tool = step.get("system"), step.get("tool")
    if declared.tools is None or system is None:
        return
    if system not in declared.tools:
        step.refuse("system", f"no server `{system}` under mcp/{hint(system, declared.tools)}")
        return
    tools = declared.tools[system]
    if tool is not None and tools is not None and tool not in tools:
        step.refuse("tool", f"mcp/{system}.yaml declares no tool `{tool}`{hint(tool, tools)}")

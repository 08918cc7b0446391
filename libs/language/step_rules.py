"""What must hold between a step and what stands before it, or what the folder declares beside the workflow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from contracts.base import JsonObject
from libs.language.decision_rules import check_decision
from libs.language.expressions import ROOTS, ExpressionError, parse
from libs.language.listings import Tools, check_arguments, required_arguments
from libs.language.outline import PRODUCERS, Outline, offers, path_objection
from libs.language.problems import hint
from libs.language.scalars import PATH
from libs.language.shapes import Checked, Place
from libs.language.steps import EXECUTORS_WITH_SESSIONS
from libs.language.templates import check_args, check_effect_key


@dataclass(frozen=True, slots=True)
class Declared:
    """What the folder declares beside workflows, as far as it is known.

    None where it declares nothing of the kind, or where what declares it has problems of its own. `read_back` are the
    arguments of a write that probe or back-link of its tool read: server → tool → argument → which of the two. `listed`
    is what servers that were asked have themselves said of their tools.
    """

    sources: frozenset[str] | None = None
    tools: Mapping[str, frozenset[str] | None] | None = None
    read_back: Mapping[str, Mapping[str, Mapping[str, str]]] = field(default_factory=dict)
    listed: Mapping[str, Tools] = field(default_factory=dict)


def check_step(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    """Note every broken rule of one step."""
    if wait := step.get("wait"):
        _check_wait(wait, position, outline)
    for_each = step.get("for_each")
    items = for_each.get("items") if for_each else None
    if items is not None and (objection := path_objection(items, position, outline)):
        for_each.refuse("items", objection)
    if rule := _RULES.get(step.get("kind") or ""):
        rule(step, position, outline, declared)


def source_objection(source: str | None, declared: Declared) -> str | None:
    """Why a source cannot be named: the folder declares sources, and it is none of them."""
    if source is None or declared.sources is None or source in declared.sources:
        return None
    return f"`{source}` is not declared in sources.yaml{hint(source, declared.sources)}"


def _check_wait(wait: Checked, position: int, outline: Outline) -> None:
    if not wait.given & {"for", "until"}:
        wait.place.refuse("give `for`, such as 24h, or `until`, an instant or a path to one")
    elif {"for", "until"} <= wait.given:
        wait.refuse("until", "there is `for` already; give one of the two")
    until = wait.get("until")
    if until is None:
        return
    try:
        moment = datetime.fromisoformat(until)
    except ValueError:
        wrong = None if PATH.fullmatch(until) else f"`{until[:80]}` is neither an instant nor a path"
        if objection := wrong or path_objection(until, position, outline):
            wait.refuse("until", f"{objection}; an instant is written 2026-03-02T09:00:00Z")
        return
    if moment.tzinfo is None:
        wait.refuse("until", f"`{until}` has no offset; write it as {until}Z, or with +01:00")


def _check_agent(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    _check_tools(step, declared)
    _check_gate(step, position, outline, own_output=True)
    if "gate" in step.given and "for_each" in step.given:
        step.refuse("gate", "cannot judge items one by one; put a gate step after this step, over the joined list")


def _check_parallel(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    for branch in step.get("parallel") or ():
        _check_tools(branch, declared)


def _check_gate_step(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    _check_gate(step, position, outline, own_output=False)


def _check_event(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    if objection := source_objection(step.get("source"), declared):
        step.refuse("source", objection)


def _check_tools(agent: Checked, declared: Declared) -> None:
    """Tools need an executor that has them; those of a server need the server."""
    executor = agent.get("agent") if "agent" in agent.given else "anthropic"
    tools = agent.get("tools") or ()
    if tools and executor is not None and executor not in EXECUTORS_WITH_SESSIONS:
        agent.refuse("tools", f"the executor `{executor}` has no tools; leave them out")
        return
    for tool in tools:
        server = tool.removeprefix("mcp:")
        if server != tool and declared.tools is not None and server not in declared.tools:
            agent.refuse("tools", f"no server `{server}` under mcp/{hint(server, declared.tools)}")


def _check_gate(step: Checked, position: int, outline: Outline, *, own_output: bool) -> None:
    if (gate := step.get("gate")) is not None:
        _check_expression(step.at("gate"), gate, position, outline, own_output=own_output)
    loop_to = step.get("loop_to")
    if loop_to is not None and (objection := outline.objection(loop_to, position)):
        step.refuse("loop_to", objection)
    for key, needed in (("loop_to", "gate"), ("loop_to", "loop_max"), ("loop_max", "loop_to"), ("loop_max", "gate")):
        if key in step.given and needed not in step.given:
            step.refuse(key, f"needs `{needed}` beside it: a refused gate loops to `loop_to`, at most `loop_max` times")


def _check_expression(place: Place, gate: str, position: int, outline: Outline, *, own_output: bool) -> None:
    try:
        expression = parse(gate)
    except ExpressionError as error:
        place.refuse(f"not an expression: {error}")
        return
    for path in expression.paths:
        if path.partition(".")[0] in ROOTS:
            if objection := path_objection(path, position, outline):
                place.refuse(objection)
        elif not own_output:
            place.refuse(f"`{path[:80]}`: a gate step has no output of its own; start with steps, context or state")


def _check_decision(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    check_decision(step, position, outline)


def _check_write(step: Checked, position: int, outline: Outline, declared: Declared) -> None:
    _check_approval(step, position, outline)
    _check_tool(step, declared)
    if (args_from := step.get("args_from")) and (objection := _args_from_objection(step, args_from, position, outline)):
        step.refuse("args_from", objection)
    check_args(step)
    check_effect_key(step)


def _args_from_objection(step: Checked, args_from: str, position: int, outline: Outline) -> str | None:
    source, _, rest = args_from.partition(".")
    if source == "item" and "for_each" in step.given:
        is_both = outline.position("item") is not None
        return f"`{args_from}` would be read from the item, not from step `item`; rename the step" if is_both else None
    if rest.partition(".")[0] != "output":
        more = ", or item.<path>" if "for_each" in step.given else ""
        return f"`{args_from}` must be <step>.output.<path>, such as review.output.pull_request{more}"
    return outline.objection(source, position, PRODUCERS | {"event", "question"})


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
    if tool is None or tools is None:
        return
    if tool not in tools:
        step.refuse("tool", f"mcp/{system}.yaml declares no tool `{tool}`{hint(tool, tools)}")
        return
    complete = "args_from" not in step.given
    listed = declared.listed.get(system)
    if listed is not None:
        check_arguments(step, tool, listed, complete=complete)
    if complete:
        required = required_arguments(listed[tool]) if listed and tool in listed else frozenset()
        asked = declared.read_back.get(system, {}).get(tool, {})
        _check_read_back(step, system, tool, {name: asker for name, asker in asked.items() if name not in required})


def _check_read_back(step: Checked, system: str, tool: str, read_back: Mapping[str, str]) -> None:
    """A probe that lacks an argument leaves every doubt to a person, and a back-link that lacks one is never made."""
    if "args" in step.given and "args" not in step.values:
        return
    given: JsonObject = step.get("args") or {}
    for name, asker in read_back.items():
        if name not in given:
            step.refuse("args", f"the {asker} of `{tool}` in mcp/{system}.yaml reads {{{{args.{name}}}}}; set `{name}`")


_RULES: Final[Mapping[str, Callable[[Checked, int, Outline, Declared], None]]] = {
    "agent": _check_agent,
    "decision": _check_decision,
    "event": _check_event,
    "gate": _check_gate_step,
    "parallel": _check_parallel,
    "write": _check_write,
}

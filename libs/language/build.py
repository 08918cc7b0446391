"""Checked documents → the values of `libs.language.model`. Runs only when nothing is wrong, so it judges nothing."""

from typing import Any

from contracts.events.run import RoleBinding
from libs.language.hashing import value_hash
from libs.language.model import (
    AgentStep,
    DecisionStep,
    Definition,
    EventTrigger,
    Limits,
    ManualTrigger,
    ParallelStep,
    Server,
    Source,
    Stage,
    Step,
    Tool,
    Trigger,
    WriteStep,
)
from libs.language.nodes import plain
from libs.language.outline import Outline
from libs.language.shapes import Checked


def definition(workflow: Checked, outline: Outline) -> Definition:
    """The definition that a checked workflow says."""
    values = dict(workflow.values)
    context = values.pop("context", None)
    limits = values.pop("limits", None)
    return Definition(
        **{
            **values,
            "required_context": _listed(context, "required"),
            "triggers": tuple(_trigger(trigger) for trigger in values.get("triggers", ())),
            "roles": {name: RoleBinding(**binding.values) for name, binding in values.get("roles", {}).items()},
            "stages": tuple(_stage(stage, outline) for stage in values["stages"]),
            "limits": Limits(**limits.values) if limits else Limits(),
        }
    )


def source(checked: Checked) -> Source:
    return Source(**checked.values, hash=value_hash(plain(checked.place.node)))


def server(checked: Checked) -> Server:
    values = {key: value for key, value in checked.values.items() if key not in ("transport", "tools")}
    tools = tuple(Tool(name=name, **tool.values) for name, tool in checked.values["tools"].items())
    return Server(**values, tools=tools, hash=value_hash(plain(checked.place.node)))


def _listed(checked: Checked | None, key: str) -> tuple[str, ...]:
    return checked.get(key) or () if checked else ()


def _trigger(trigger: Checked) -> Trigger:
    return ManualTrigger(**trigger.values) if trigger.get("kind") == "manual" else EventTrigger(**trigger.values)


def _stage(stage: Checked, outline: Outline) -> Stage:
    return Stage(
        key=stage.get("key"),
        name=stage.get("name"),
        entry_requires=_listed(stage.get("entry"), "requires"),
        steps=tuple(_step(step, outline) for step in stage.get("steps")),
    )


def _step(step: Checked, outline: Outline) -> Step:
    match step.get("kind"):
        case "agent":
            return _agent(step)
        case "decision":
            return DecisionStep(**step.values)
        case "parallel":
            return ParallelStep(**{**step.values, "parallel": tuple(_agent(branch) for branch in step.get("parallel"))})
        case _:
            position = outline.position(step.get("key"))
            assert position is not None, "the outline holds every step"
            return WriteStep(**{**step.values, "requires_decision": outline.decision_for(step, position)})


def _agent(step: Checked) -> AgentStep:
    values: dict[str, Any] = dict(step.values)
    if "budget_usd" in values:
        values["budget_microdollars"] = values.pop("budget_usd")
    return AgentStep(**values)

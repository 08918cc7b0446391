"""Checked documents → the values of `libs.language.model`. Runs only when nothing is wrong, so it judges nothing."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from contracts.base import JsonObject
from contracts.events.run import RoleBinding
from libs.language.hashing import value_hash
from libs.language.model import (
    AgentStep,
    Approvals,
    BackLink,
    Channel,
    CircuitBreaker,
    Concurrency,
    DecisionStep,
    Definition,
    EventStep,
    EventTrigger,
    ForEach,
    GateStep,
    Limits,
    ManualStep,
    ManualTrigger,
    ParallelStep,
    Probe,
    RateLimit,
    ScheduleTrigger,
    Server,
    Source,
    Stage,
    Step,
    Tool,
    Trigger,
    Wait,
    WriteStep,
)
from libs.language.nodes import plain
from libs.language.outline import Outline
from libs.language.shapes import Checked
from libs.language.steps import TIMEOUT


def definition(workflow: Checked, outline: Outline, *, context_defaults: JsonObject | None = None) -> Definition:
    """The definition that a checked workflow says."""
    values = dict(workflow.values)
    context = values.pop("context", None)
    concurrency, limits = values.pop("concurrency", None), values.pop("limits", None)
    triggers = values.pop("triggers", ())
    return Definition(
        **{
            **values,
            "context_defaults": context_defaults or {},
            "required_context": _listed(context, "required"),
            "scope_context": _listed(context, "scope"),
            "concurrency": None if concurrency is None else Concurrency(**concurrency.values),
            "triggers": tuple(_TRIGGERS[trigger.get("kind")](**trigger.values) for trigger in triggers),
            "roles": {name: RoleBinding(**binding.values) for name, binding in values.get("roles", {}).items()},
            "stages": tuple(_stage(stage, outline) for stage in values["stages"]),
            "limits": Limits(**limits.values) if limits else Limits(),
        }
    )


def source(checked: Checked) -> Source:
    return Source(**checked.values, hash=value_hash(plain(checked.place.node)))


def server(checked: Checked) -> Server:
    values = dict(checked.values)
    rate, breaker = values.pop("rate_limit", None), values.pop("circuit_breaker", None)
    return Server(
        **{
            **values,
            "tools": tuple(_server_tool(name, tool) for name, tool in values["tools"].items()),
            "rate_limit": None if rate is None else RateLimit(**rate.values),
            "circuit_breaker": CircuitBreaker(**breaker.values) if breaker else CircuitBreaker(),
        },
        hash=value_hash(plain(checked.place.node)),
    )


def _server_tool(name: str, checked: Checked) -> Tool:
    values = dict(checked.values)
    probe, back_link = values.pop("probe", None), values.pop("back_link", None)
    return Tool(
        name=name,
        **values,
        probe=None if probe is None else Probe(**probe.values),
        back_link=None if back_link is None else BackLink(**back_link.values),
    )


def channel(checked: Checked) -> Channel:
    return Channel(**checked.values, hash=value_hash(plain(checked.place.node)))


def _listed(checked: Checked | None, key: str) -> tuple[str, ...]:
    return checked.get(key) or () if checked else ()


def _stage(stage: Checked, outline: Outline) -> Stage:
    return Stage(
        key=stage.get("key"),
        name=stage.get("name"),
        entry_requires=_listed(stage.get("entry"), "requires"),
        steps=tuple(_step(step, outline) for step in stage.get("steps")),
    )


def _step(step: Checked, outline: Outline) -> Step:
    values: dict[str, Any] = {**step.values, **_when_and_how_often(step)}
    match step.get("kind"):
        case "agent":
            return _agent(values)
        case "parallel":
            return ParallelStep(**{**values, "parallel": tuple(_agent(branch.values) for branch in values["parallel"])})
        case "decision":
            return _decision(values)
        case "write":
            position = outline.position(values["key"])
            assert position is not None, "the outline holds every step"
            return WriteStep(**{**values, "requires_decision": outline.decision_for(step, position)})
        case kind:
            return _STEPS[kind](**values)


def _when_and_how_often(step: Checked) -> dict[str, Any]:
    wait, for_each = step.get("wait"), step.get("for_each")
    return {
        **({"wait": Wait(for_=wait.get("for"), until=wait.get("until"))} if wait else {}),
        **({"for_each": ForEach(**for_each.values)} if for_each else {}),
    }


def _decision(values: dict[str, Any]) -> DecisionStep:
    named = {**values, "barred": values.get("not", ()), "on": dict(values.get("on", {}))}
    named.pop("not", None)
    named["on_timeout"] = named["on"].pop(TIMEOUT, None)
    if (approvals := values.get("approvals")) is not None:
        named["approvals"] = Approvals(**approvals.values)
    if "outcomes" not in values and {"question", "form"} & values.keys():
        named["outcomes"] = ("answer",)
    return DecisionStep(**named)


def _agent(values: Mapping[str, Any]) -> AgentStep:
    named = {**values}
    if "budget_usd" in named:
        named["budget_microdollars"] = named.pop("budget_usd")
    return AgentStep(**named)


_STEPS: Final[Mapping[str, Callable[..., Step]]] = {
    "manual": ManualStep,
    "event": EventStep,
    "gate": GateStep,
}
_TRIGGERS: Final[Mapping[str, Callable[..., Trigger]]] = {
    "manual": ManualTrigger,
    "event": EventTrigger,
    "schedule": ScheduleTrigger,
}

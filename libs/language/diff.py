"""What differs between two versions of a definition, step by step."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from contracts.base import JsonObject, JsonValue
from libs.language.model import AgentStep, Bundle, DecisionStep, ManualStep, ParallelStep, Step


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A value that differs, by its dotted path; None where there is none."""

    path: str
    before: JsonValue
    after: JsonValue


@dataclass(frozen=True, slots=True)
class StepChange:
    """A step that is not in both versions alike. A step that is only `moved` stands elsewhere among the others."""

    key: str
    kind: Literal["added", "removed", "changed", "moved"]
    fields: tuple[FieldChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Difference:
    """`settings` are what is said outside of the steps."""

    settings: tuple[FieldChange, ...]
    steps: tuple[StepChange, ...]


def compare(before: Bundle, after: Bundle) -> Difference:
    """Compare two versions as their default variant has them; what the variants override is among the settings.

    Steps come in the order of the later version, each removed one where it stood. The text of a prompt and the content
    of a schema count as values of the steps that name them, so a changed file shows where it is used.
    """
    old, new = dict(_steps(before)), dict(_steps(after))
    moved = _moved([key for key in old if key in new], [key for key in new if key in old])
    changes: list[StepChange] = []
    for key in _merged(list(old), list(new)):
        if key not in old:
            changes.append(StepChange(key, "added"))
        elif key not in new:
            changes.append(StepChange(key, "removed"))
        elif fields := tuple(_fields(old[key], new[key])):
            changes.append(StepChange(key, "changed", fields))
        elif key in moved:
            changes.append(StepChange(key, "moved"))
    settings = tuple(_fields(_settings(before), _settings(after)))
    return Difference(settings=settings, steps=tuple(changes))


def _settings(bundle: Bundle) -> JsonObject:
    values: JsonObject = bundle.definition.model_dump(mode="json", exclude={"stages"})
    values["stages"] = {
        stage.key: {"name": stage.name, "entry_requires": list(stage.entry_requires)}
        for stage in bundle.definition.stages
    }
    return values


def _steps(bundle: Bundle) -> Iterator[tuple[str, JsonObject]]:
    """Every step with all that it says, branches after theirs."""
    for stage in bundle.definition.stages:
        for step in stage.steps:
            yield step.key, {**_said(bundle, step), "stage": stage.key}
            if isinstance(step, ParallelStep):
                for branch in step.parallel:
                    yield f"{step.key}.{branch.key}", _said(bundle, branch)


def _said(bundle: Bundle, step: Step) -> JsonObject:
    values: JsonObject = step.model_dump(mode="json", exclude={"key", "parallel"})
    if isinstance(step, AgentStep):
        values["prompt"] = {"file": step.prompt, "text": bundle.prompts.get(step.prompt)}
    if isinstance(step, DecisionStep) and step.form is not None:
        values["form"] = {"file": step.form, "schema": bundle.schemas.get(step.form)}
    if isinstance(step, AgentStep | ManualStep) and step.output is not None:
        values["output"] = {"file": step.output, "schema": bundle.schemas.get(step.output)}
    return values


def _fields(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[FieldChange]:
    """The values that differ. Objects are walked into, but for schemas; lists are compared whole."""
    for name in dict.fromkeys((*before, *after)):
        here = f"{path}{name}"
        old, new = before.get(name), after.get(name)
        if isinstance(old, dict) and isinstance(new, dict) and name != "schema":
            yield from _fields(old, new, f"{here}.")
        elif not _same(old, new):
            yield FieldChange(here, old, new)


def _same(old: Any, new: Any) -> bool:
    """Equality in which true is not 1, at any depth."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(_same(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    return isinstance(old, bool) == isinstance(new, bool) and bool(old == new)


def _moved(old: list[str], new: list[str]) -> frozenset[str]:
    """The keys, common to both, whose place among the others is another one."""
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    stayed = {key for block in matcher.get_matching_blocks() for key in old[block.a : block.a + block.size]}
    return frozenset(new) - stayed


def _merged(old: list[str], new: list[str]) -> list[str]:
    """The later version's order, with what was removed behind what it stood behind."""
    merged = list(new)
    for place, key in enumerate(old):
        if key not in new:
            before = next((old[n] for n in range(place - 1, -1, -1) if old[n] in merged), None)
            merged.insert(0 if before is None else merged.index(before) + 1, key)
    return merged

"""Variants: what an override reaches, what it cannot, and that the changed workflow is checked like the written one."""

import pytest

from contracts.errors import Rejected
from libs.language.loader import load_folder
from libs.language.model import AgentStep, DecisionStep, Definition
from libs.language.variants import VARIANTS_MAX

WORKFLOW = """\
workflow:
  id: w
  name: W
  variants:
    default: {}
    india:
      OVERRIDES
  context: { required: [jira_key] }
  triggers: [{ kind: manual, roles: [developer] }]
  roles: { lead_dev: { roles: [platform_admin] } }
  stages:
    - key: design
      steps:
        - { key: draft, kind: agent, prompt: prompts/p.md, budget_usd: 1 }
        - key: build
          kind: parallel
          parallel: [{ key: left, prompt: prompts/p.md }, { key: right, prompt: prompts/p.md }]
        - { key: design_review, kind: decision, role: lead_dev, artifact: draft }
        - { key: send, kind: write, system: github, tool: open, args: { labels: [a] }, effect_key: k }
  limits: { max_loop: 1 }
"""
OTHERS = {
    "workflows/w/prompts/p.md": "Do it.",
    "workflows/w/prompts/q.md": "Do it otherwise.",
    "workflows/w/schemas/s.json": '{"type": "object"}',
    "workflows/w/schemas/t.json": '{"type": "array"}',
}


def folder(*overrides: str) -> dict[str, str]:
    """The workflow with these overrides in its variant, the first in line 7."""
    return {**OTHERS, "workflows/w/workflow.yaml": WORKFLOW.replace("OVERRIDES", "\n      ".join(overrides))}


def variant(*overrides: str) -> Definition:
    [bundle] = load_folder(folder(*overrides)).workflows
    assert bundle.of(None) == bundle.of("default") == bundle.definition
    return bundle.of("india")


def problems_of(files: dict[str, str]) -> list[tuple[int | None, str, str]]:
    with pytest.raises(Rejected) as caught:
        load_folder(files)
    return [(item.line, item.path, item.message) for item in caught.value.errors]


def step(definition: Definition, key: str) -> object:
    return next(step for step in definition.steps if step.key == key)


def test_a_role_by_the_keys_of_lists() -> None:
    changed = variant("stages.design.steps.design_review.role: lead_dev_in")
    review = step(changed, "design_review")
    assert isinstance(review, DecisionStep)
    assert review.role == "lead_dev_in"
    assert review.artifact == "draft"
    [bundle] = load_folder(folder("stages.design.steps.design_review.role: lead_dev_in")).workflows
    written = step(bundle.definition, "design_review")
    assert isinstance(written, DecisionStep)
    assert written.role == "lead_dev"
    assert list(bundle.variants) == ["india"]


def test_a_context_key_is_a_default() -> None:
    changed = variant("context.region: IN", "context.teams: [a, b]")
    assert changed.context_defaults == {"region": "IN", "teams": ["a", "b"]}
    assert changed.required_context == ("jira_key",)


def test_the_default_variant_is_what_starts_without_one() -> None:
    text = WORKFLOW.replace("default: {}", "default: { context.region: EU, limits.max_loop: 2 }")
    [bundle] = load_folder({**OTHERS, "workflows/w/workflow.yaml": text.replace("OVERRIDES", "domain: x")}).workflows
    assert bundle.definition.context_defaults == {"region": "EU"}
    assert (bundle.definition.limits.max_loop, bundle.of("india").limits.max_loop) == (2, 1)
    assert bundle.of("india").context_defaults == {}


@pytest.mark.parametrize(
    "override",
    [
        "limits.max_loop: 3",
        "limits.wall_clock: 4h",
        "limits: { max_loop: 3 }",
        "domain: other",
        "roles.lead_dev.groups: [leads]",
        "roles.lead_dev_in: { groups: [leads] }",
        "stages.design.steps.draft.model: m-2",
        "stages.design.steps.design_review.due: 4h",
        "stages.design.steps.build.parallel.left.budget_usd: 3",
        "stages.design.steps.send.args.labels.0: b",
        "stages.design.name: Design in India",
        "on_failure: { default: fail }",
    ],
)
def test_what_an_override_reaches(override: str) -> None:
    [bundle] = load_folder(folder(override)).workflows
    assert bundle.of("india") != bundle.definition


def test_a_variant_brings_its_files() -> None:
    override = "stages.design.steps.draft.prompt: prompts/q.md"
    [bundle] = load_folder(folder(override, "stages.design.steps.draft.output: schemas/s.json")).workflows
    draft = step(bundle.of("india"), "draft")
    assert isinstance(draft, AgentStep)
    assert (draft.prompt, draft.output) == ("prompts/q.md", "schemas/s.json")
    assert set(bundle.prompts) == {"prompts/p.md", "prompts/q.md"}
    assert set(bundle.schemas) == {"schemas/s.json"}


def test_the_order_of_overrides_means_nothing() -> None:
    whole, part = "limits: { max_loop: 3 }", "limits.max_attempts: 7"
    assert variant(whole, part) == variant(part, whole)
    assert variant(whole, part).limits.max_attempts == 7


def test_each_override_makes_another_version() -> None:
    hashes = {load_folder(folder(one)).workflows[0].hash for one in ("domain: a", "domain: b", "context.a: 1")}
    assert len(hashes) == 3


@pytest.mark.parametrize(
    "override, message",
    [
        ("stages.desing.steps.draft.model: x", "names nothing: stages has no `desing`; did you mean `design`?"),
        ("stages.design.steps.drfat.model: x", "stages.design.steps has no `drfat`; did you mean `draft`?"),
        ("stages.design.steps.draft.gate.x: 1", "stages.design.steps.draft has no `gate`"),
        ("stages.design.steps.draft.model.x: 1", "stages.design.steps.draft has no `model`"),
        ("stages.design.steps.draft.prompt.x: 1", "stages.design.steps.draft.prompt has no `x`"),
        ("stages.design.steps.9: {}", "stages.design.steps has no `9`"),
        ("on_failure.default: fail", "the workflow has no `on_failure`"),
        ("nothing.at.all: 1", "the workflow has no `nothing`"),
        ("id: other", "`id` is the same in all variants"),
        ("triggers.0.roles: [a]", "`triggers` is the same in all variants"),
        ("run_as: w@example.com", "`run_as` is the same in all variants"),
        ("variants.default: {}", "`variants` is the same in all variants"),
        ("stages.design.steps.draft.modle: x", "unknown key; did you mean `model`?"),
        ("limits.max_lop: 2", "unknown key; did you mean `max_loop`?"),
        ("limits.max_loop: many", "must be a whole number"),
        ("stages.design.steps.design_review.artifact: send", "does not come before"),
        ("stages.design.steps.draft.prompt: prompts/gone.md", "no file `prompts/gone.md`"),
        ("stages.design.steps.draft.gate: a = 1", "not an expression"),
        ("stages.design.steps.send.effect_key: '{{secret.x}}'", "unknown root"),
        ('stages.design.steps.send.args.labels.0: "{{item}}"', "an item only in a step with `for_each`"),
        ("Stages: 1", "not a dotted path"),
        ("context.a: 1.10", "quote it"),
    ],
)
def test_a_problem_is_told_at_the_override(override: str, message: str) -> None:
    [(line, path, found)] = problems_of(folder("domain: fine", override))
    assert message in found
    assert (line, path) == (8, f"variants.india.{override.partition(': ')[0]}"), found


def test_a_problem_below_an_override_has_its_own_path_and_line() -> None:
    overrides = ["roles:", "  lead_dev: { roles: [a] }", "  nobody: {}"]
    assert [(line, path) for line, path, _ in problems_of(folder(*overrides))] == [(9, "variants.india.roles.nobody")]


def test_what_an_override_breaks_elsewhere_is_told_at_it() -> None:
    [(line, path, message)] = problems_of(folder("stages.design.steps.draft.key: drawn"))
    assert (line, path) == (7, "variants.india.stages.design.steps.draft.key")
    assert message.startswith("stages.design.steps.design_review.artifact: no step `draft`")


def test_what_several_overrides_break_together_is_told_at_the_variant() -> None:
    [(line, path, message)] = problems_of(folder("stages.design.steps.draft.key: drawn", "domain: x"))
    assert (line, path) == (6, "variants.india")
    assert message.startswith("stages.design.steps.design_review.artifact: no step `draft`")


def test_what_is_wrong_without_the_variant_is_told_once() -> None:
    files = folder("domain: x")
    files["workflows/w/workflow.yaml"] = files["workflows/w/workflow.yaml"].replace("artifact: draft", "artifact: no")
    assert [path for _, path, _ in problems_of(files)] == ["stages.design.steps.design_review.artifact"]


def test_a_schema_that_only_a_variant_names_is_checked() -> None:
    with pytest.raises(Rejected) as caught:
        load_folder(folder("stages.design.steps.draft.output: schemas/t.json"))
    assert [(item.file, item.path) for item in caught.value.errors] == [("workflows/w/schemas/t.json", "type")]


@pytest.mark.parametrize("name", ["India", "a b", "1"])
def test_names_of_variants_are_ids(name: str) -> None:
    text = WORKFLOW.replace("india:", f'"{name}":').replace("OVERRIDES", "domain: x")
    [(line, _, message)] = problems_of({**OTHERS, "workflows/w/workflow.yaml": text})
    assert line == 6
    assert "not the name of a variant" in message


def test_variants_are_bounded() -> None:
    many = "\n    ".join(f"v{count}: {{ domain: x }}" for count in range(VARIANTS_MAX))
    text = WORKFLOW.replace("OVERRIDES", "domain: x").replace("    default: {}", f"    {many}")
    [(_, path, message)] = problems_of({**OTHERS, "workflows/w/workflow.yaml": text})
    assert (path, message) == ("variants", "21 variants; at most 20 are read")

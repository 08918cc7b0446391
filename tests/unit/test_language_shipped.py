"""What is shipped loads clean, and its demo says what its schemas, gates and decisions allow."""

import json
from pathlib import Path
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from libs.adapters import normalise
from libs.language.expressions import evaluate, parse
from libs.language.loader import load_folder
from libs.language.matching import matches
from libs.language.model import AgentStep, Bundle, DecisionStep, EventTrigger, ParallelStep, WriteStep
from libs.language.paths import MISSING, resolve
from minutebook.models.states import DecisionOutcome

ROOT = Path(__file__).parents[2] / "definitions"
FOLDER = load_folder({str(p.relative_to(ROOT)): p.read_text("utf-8") for p in ROOT.rglob("*") if p.is_file()})
BUNDLES = {bundle.definition.id: bundle for bundle in FOLDER.workflows}


def demo(workflow: str, name: str) -> Any:
    return json.loads((ROOT / "workflows" / workflow / "demo" / name).read_text("utf-8"))


def agents(bundle: Bundle) -> dict[str, AgentStep]:
    """Every agent step and branch by the key under which its attempts run."""
    found: dict[str, AgentStep] = {}
    for step in bundle.definition.steps:
        if isinstance(step, AgentStep):
            found[step.key] = step
        if isinstance(step, ParallelStep):
            found |= {f"{step.key}.{branch.key}": branch for branch in step.parallel}
    return found


def answer(workflow: str, step: str, round_: int) -> Any:
    """The scripted output of a step in a round: a rule that names the round beats one that does not."""
    rules = [r for r in demo(workflow, "model.json") if r["step"] == step and r["round"] in (None, round_)]
    return max(rules, key=lambda rule: rule["round"] is not None)["output"]


def test_what_is_shipped() -> None:
    assert set(BUNDLES) == {"core-dev", "hello"}
    assert [source.id for source in FOLDER.sources] == ["jira", "generic"]
    assert [(server.id, [tool.name for tool in server.tools]) for server in FOLDER.servers] == [
        ("github", ["create_pull_request"])
    ]


@pytest.mark.parametrize("workflow", sorted(BUNDLES))
def test_every_scripted_answer_fits_its_schema(workflow: str) -> None:
    bundle = BUNDLES[workflow]
    steps = agents(bundle)
    rules = demo(workflow, "model.json")
    assert {rule["step"] for rule in rules} == set(steps), "every agent step is scripted, and nothing else"
    for rule in rules:
        output = steps[rule["step"]].output
        assert output is not None
        Draft202012Validator(bundle.schemas[output]).validate(rule["output"])
        assert rule["input_tokens"] > 0
        assert rule["output_tokens"] > 0
        assert rule["attempt"] is None


@pytest.mark.parametrize("workflow", sorted(BUNDLES))
def test_prompts_are_contracts(workflow: str) -> None:
    for key, step in agents(BUNDLES[workflow]).items():
        prompt = BUNDLES[workflow].prompts[step.prompt].lower()
        assert "write to no external system" in prompt, key
        assert "data fences" in prompt, key


def test_the_story_starts_core_dev() -> None:
    definition = BUNDLES["core-dev"].definition
    [trigger] = [t for t in definition.triggers if isinstance(t, EventTrigger)]
    event = normalise("jira", demo("core-dev", "story.json"), {})
    assert matches(trigger.match, event.event, event.keys)
    assert all(resolve(key, event.keys) not in (None, MISSING) for key in definition.required_context)


def test_the_review_loops_once() -> None:
    [review] = [s for s in BUNDLES["core-dev"].definition.steps if s.key == "review"]
    assert isinstance(review, AgentStep)
    assert review.gate is not None
    verdicts = [
        evaluate(parse(review.gate), output=answer("core-dev", "review", round_), steps={}, context={}, state={})
        for round_ in (1, 2)
    ]
    assert verdicts == [False, True]
    for round_ in (1, 2):
        findings = answer("core-dev", "review", round_)["findings"]
        assert findings["blocking"] == sum(item["severity"] == "blocking" for item in findings["items"])


def test_the_answers_are_ones_that_the_decisions_take() -> None:
    decisions = {s.key: s for s in BUNDLES["core-dev"].definition.steps if isinstance(s, DecisionStep)}
    answers = demo("core-dev", "decisions.json")
    assert [(a["step"], a["round"], a["outcome"]) for a in answers] == [
        ("po_review", 1, "request_changes"),
        ("po_review", 2, "approve"),
        ("design_review", 1, "approve"),
        ("release_approval", 1, "approve"),
    ]
    for given in answers:
        decision = decisions[given["step"]]
        assert given["outcome"] in get_args(DecisionOutcome)
        assert given["outcome"] in decision.outcomes
        for path in given.get("revise", {}):
            assert decision.artifact is not None
            assert resolve(path, answer("core-dev", decision.artifact, 2)) is not MISSING


def test_the_write_finds_its_arguments() -> None:
    [write] = [s for s in BUNDLES["core-dev"].definition.steps if isinstance(s, WriteStep)]
    assert write.requires_decision == "release_approval"
    assert write.args_from is not None
    step, _, path = write.args_from.partition(".output.")
    assert set(answer("core-dev", step, 2)[path]) == {"title", "body"}
    assert write.args["head"] == "{{state.branch}}"
    assert write.args["base"] == "next"


def test_the_second_analysis_answers_the_comment() -> None:
    first, second = (answer("core-dev", "story_analysis", round_) for round_ in (1, 2))
    assert "vehicle" not in json.dumps(first["acceptance_criteria"])
    assert "vehicle" in json.dumps(second["acceptance_criteria"])
    assert "voucher" in json.dumps(second["acceptance_criteria"])
    assert not second["open_questions"]

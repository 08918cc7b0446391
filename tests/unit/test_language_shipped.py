"""What is shipped loads clean, and its demo says what its schemas, gates and decisions allow."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from jsonschema import Draft202012Validator

from libs.adapters import normalise
from libs.language.cron import Cron
from libs.language.expressions import evaluate, parse
from libs.language.interpolation import interpolate
from libs.language.loader import load_folder
from libs.language.matching import matches
from libs.language.model import (
    AgentStep,
    Bundle,
    DecisionStep,
    EventTrigger,
    ParallelStep,
    ScheduleTrigger,
    WriteStep,
)
from libs.language.paths import MISSING, resolve
from minutebook.models.states import DecisionOutcome
from services.dev.people import PEOPLE

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
    assert set(BUNDLES) == {"core-dev", "growth-proposal", "hello", "pmo-review"}
    assert [source.id for source in FOLDER.sources] == ["jira", "generic"]
    assert [(server.id, [tool.name for tool in server.tools]) for server in FOLDER.servers] == [
        ("atlassian", ["createJiraIssue"]),
        ("github", ["create_pull_request"]),
        ("salesforce", ["create_record"]),
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


@pytest.mark.parametrize(
    "workflow, expected",
    [
        (
            "core-dev",
            [
                ("po_review", 1, "request_changes"),
                ("po_review", 2, "approve"),
                ("design_review", 1, "approve"),
                ("release_approval", 1, "approve"),
            ],
        ),
        ("growth-proposal", [("presales_review", 1, "request_changes"), ("presales_review", 2, "approve")]),
        ("pmo-review", [("pmo_decision", 1, "request_changes"), ("pmo_decision", 2, "approve")]),
    ],
)
def test_the_answers_are_ones_that_the_decisions_take(workflow: str, expected: list[tuple[str, int, str]]) -> None:
    decisions = {s.key: s for s in BUNDLES[workflow].definition.steps if isinstance(s, DecisionStep)}
    answers = demo(workflow, "decisions.json")
    assert [(a["step"], a["round"], a["outcome"]) for a in answers] == expected
    people = {person.email: person for person in PEOPLE}
    for given in answers:
        decision = decisions[given["step"]]
        assert given["outcome"] in get_args(DecisionOutcome)
        assert given["outcome"] in decision.outcomes
        assert set(people[given["user"]].roles) & set(BUNDLES[workflow].definition.binding(decision.role).roles)
        for path in given.get("revise", {}):
            assert decision.artifact is not None
            assert resolve(path, answer(workflow, decision.artifact, 2)) is not MISSING


def test_the_write_finds_its_arguments() -> None:
    [write] = [s for s in BUNDLES["core-dev"].definition.steps if isinstance(s, WriteStep)]
    assert write.requires_decision == "release_approval"
    assert write.args_from is not None
    step, _, path = write.args_from.partition(".output.")
    assert set(answer("core-dev", step, 2)[path]) == {"title", "body"}
    assert write.args["head"] == "{{state.branch}}"
    assert write.args["base"] == "next"


def test_india_has_its_own_lead_developers() -> None:
    decisions = {s.key: s.role for s in BUNDLES["core-dev"].of("india").steps if isinstance(s, DecisionStep)}
    assert decisions == {
        "po_review": "product_owner",
        "design_review": "lead_dev_in",
        "release_approval": "lead_dev_in",
    }


def test_the_second_analysis_answers_the_comment() -> None:
    first, second = (answer("core-dev", "story_analysis", round_) for round_ in (1, 2))
    assert "vehicle" not in json.dumps(first["acceptance_criteria"])
    assert "vehicle" in json.dumps(second["acceptance_criteria"])
    assert "voucher" in json.dumps(second["acceptance_criteria"])
    assert not second["open_questions"]


# --- growth-proposal -----------------------------------------------------------------------------------------------


def written(workflow: str, *, context: dict[str, Any], round_: int, item: int | None = None) -> dict[str, Any]:
    """The arguments of a workflow's one write, as they are sent when the scripted artefact is approved as it is."""
    [write] = [s for s in BUNDLES[workflow].definition.steps if isinstance(s, WriteStep)]
    assert write.args_from is not None
    source, _, path = write.args_from.partition(".")
    if write.for_each is None:
        base = resolve(path.partition(".")[2], answer(workflow, source, round_))
    else:
        _, step, *rest = write.for_each.items.split(".")
        items = resolve(".".join(rest), answer(workflow, step, round_))
        assert isinstance(items, list)
        assert item is not None
        base = resolve(path, items[item])
    assert isinstance(base, dict)
    over = interpolate(write.args, args=base, context=context, state={}, run_id="0", index=item)
    assert isinstance(over, dict)
    return {**base, **over}


def test_a_proposal_is_noted_at_the_opportunity_that_the_start_named() -> None:
    arguments = written("growth-proposal", context=demo("growth-proposal", "context.json"), round_=2)
    assert arguments.keys() == {"sobject", "fields"}, "what the tool takes, and nothing else"
    assert arguments["sobject"] == "Note"
    assert arguments["fields"].keys() == {"ParentId", "Title", "Body"}
    assert arguments["fields"]["ParentId"] == "0065g00000XyZbQAAV", "never from the model"


def test_the_united_kingdom_has_its_own_presales() -> None:
    bundle = BUNDLES["growth-proposal"]
    roles = {
        name: next(s.role for s in bundle.of(name).steps if isinstance(s, DecisionStep)) for name in ("default", "uk")
    }
    assert roles == {"default": "presales", "uk": "presales_uk"}
    assert (bundle.of(None).context_defaults, bundle.of("uk").context_defaults) == (
        {"currency": "EUR"},
        {"currency": "GBP"},
    )
    [review] = [s for s in bundle.definition.steps if isinstance(s, DecisionStep)]
    assert review.escalate_to == "deal_desk"
    assert set(bundle.definition.roles) == {"presales", "presales_uk", "deal_desk"}


def test_the_second_proposal_answers_the_comment() -> None:
    first, second = (json.dumps(answer("growth-proposal", "proposal", round_)) for round_ in (1, 2))
    assert "trial" not in first
    assert "trial" in second


# --- pmo-review ----------------------------------------------------------------------------------------------------


def test_the_review_comes_every_monday_morning() -> None:
    definition = BUNDLES["pmo-review"].definition
    [schedule] = [t for t in definition.triggers if isinstance(t, ScheduleTrigger)]
    assert schedule.cron is not None
    slots = Cron.parse(schedule.cron).next_slots(
        2, after=datetime(2026, 3, 24, tzinfo=UTC), zone=ZoneInfo(schedule.timezone)
    )
    assert [slot.local for slot in slots] == ["2026-03-30T07:00:00+01:00", "2026-04-06T07:00:00+01:00"]
    assert definition.run_as is not None
    missing = [key for key in definition.required_context if key not in definition.context_defaults]
    assert missing == [], "a schedule gives no context, so everything required has a default"
    assert not BUNDLES["pmo-review"].of("client").context_defaults, "a client's project is named by the start"


def test_each_action_is_an_issue_of_its_own() -> None:
    actions = answer("pmo-review", "findings", 2)["actions"]
    assert len(actions) == 3
    for index, action in enumerate(actions):
        arguments = written("pmo-review", context={"project_key": "FERRY"}, round_=2, item=index)
        description = arguments.pop("description")
        assert str(description).startswith(action["issue"]["description"])
        assert f"Action {index} of the run" in str(description), "by which a probe knows it again"
        assert arguments == {"summary": action["issue"]["summary"], "projectKey": "FERRY", "issueTypeName": "Task"}


def test_every_action_answers_a_finding() -> None:
    for round_ in (1, 2):
        found = answer("pmo-review", "findings", round_)
        assert {action["answers"] for action in found["actions"]} <= {one["topic"] for one in found["findings"]}

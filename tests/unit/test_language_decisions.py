"""Quorums, four eyes, questions and approvals with an end: what a decision step may say, and what it becomes."""

from datetime import timedelta
from typing import Any

import pytest

from libs.language.diff import compare
from libs.language.loader import load_folder
from libs.language.model import ANSWER_FORM, Approvals, Bundle, DecisionStep, WriteStep
from tests.unit.test_language_rules import DRAFT, OTHERS, SEND, assert_one, problems_of, steps

FORM = """{ "type": "object", "required": ["window"], "additionalProperties": false,
  "properties": { "window": { "enum": ["tonight", "sunday"] } } }"""
FILES = {"workflows/w/schemas/window.json": FORM}
ASK = "{ key: ask, kind: decision, role: ops, question: 'When?', form: schemas/window.json, timeout: 3h }"


def loaded(*lines: str) -> Bundle:
    [bundle] = load_folder({**OTHERS, **FILES, "workflows/w/workflow.yaml": steps(*lines)}).workflows
    return bundle


def decision(*lines: str, key: str) -> DecisionStep:
    step = next(step for step in loaded(*lines).definition.steps if step.key == key)
    assert isinstance(step, DecisionStep)
    return step


def test_a_quorum_with_four_eyes_and_an_end() -> None:
    said = (
        "{ key: ok, kind: decision, role: lead, approvals: { need: 2, groups: { security: 1 }, veto: none }, "
        "not: [initiator, reviser, check], approval_valid_for: 48h, timeout: 24h, on: { timeout: draft } }"
    )
    step = decision(DRAFT, "{ key: check, kind: manual, role: qa }", said, key="ok")
    assert step.approvals == Approvals(need=2, distinct=True, groups={"security": 1}, veto="none")
    assert step.barred == ("initiator", "reviser", "check")
    assert (step.approval_valid_for, step.on_timeout, step.on) == (timedelta(hours=48), "draft", {})
    assert step.outcomes == ("approve", "request_changes", "reject", "cancel")
    assert not step.is_question


def test_a_question_is_answered_and_its_answer_is_handed_off() -> None:
    bundle = loaded(
        DRAFT,
        "{ key: ok, kind: decision, role: lead }",
        ASK.replace(" }", ", timeout_answer: { window: sunday } }"),
        SEND.replace(" }", ", args_from: ask.output, args: { note: '{{args.window}}' } }"),
        "{ key: late, kind: gate, gate: steps.ask.window == 'sunday' }",
    )
    ask, send = bundle.definition.steps[2], bundle.definition.steps[3]
    assert isinstance(ask, DecisionStep)
    assert isinstance(send, WriteStep)
    assert (ask.outcomes, ask.timeout_answer) == (("answer",), {"window": "sunday"})
    assert bundle.form_of(ask)["required"] == ["window"]
    assert send.requires_decision == "ok", "a question approves nothing"


def test_a_question_without_a_form_asks_for_text() -> None:
    bundle = loaded(DRAFT, "{ key: ask, kind: decision, role: ops, question: 'Which of {{steps.draft.options}}?' }")
    [_, ask] = bundle.definition.steps
    assert isinstance(ask, DecisionStep)
    assert bundle.form_of(ask) == ANSWER_FORM


def test_a_changed_form_is_a_change_of_the_step_that_names_it() -> None:
    before = loaded(DRAFT, ASK)
    [bundle] = load_folder(
        {
            **OTHERS,
            "workflows/w/schemas/window.json": FORM.replace("tonight", "today"),
            "workflows/w/workflow.yaml": steps(DRAFT, ASK),
        }
    ).workflows
    [change] = compare(before, bundle).steps
    assert (change.key, change.fields[0].path) == ("ask", "form.schema")
    assert before.hash != bundle.hash


LEAD = "key: d, kind: decision, role: lead"
QUESTION = "key: d, kind: decision, role: lead, question: 'What now?'"


@pytest.mark.parametrize(
    "step, path, message",
    [
        (f"{{ {LEAD}, approvals: {{ distinct: true }} }}", "d.approvals.need", "required and missing"),
        (f"{{ {LEAD}, approvals: {{ need: 0 }} }}", "d.approvals.need", "from 1 to 20"),
        (f"{{ {LEAD}, approvals: {{ need: 1, groups: {{ sec: 2 }} }} }}", "d.approvals.groups.sec", "raise `need`"),
        (f"{{ {LEAD}, approvals: {{ need: 2 }}, outcomes: [reject] }}", "d.approvals", "does not offer approve"),
        (f"{{ {LEAD}, approval_valid_for: 1h, outcomes: [reject] }}", "d.approval_valid_for", "does not offer approve"),
        (f"{{ {LEAD}, not: [] }}", "d.not", "must not be empty"),
        (f"{{ {LEAD}, not: [nobody] }}", "d.not", "no step `nobody`"),
        (f"{{ {LEAD}, not: [draft] }}", "d.not", "is an agent step"),
        (f"{{ {LEAD}, not: [initiator, initiator] }}", "d.not", "listed twice"),
        (f"{{ {LEAD}, outcomes: [approve, answer] }}", "d.outcomes", "only a question is answered"),
        (f"{{ {LEAD}, timeout: 1h, timeout_answer: {{}} }}", "d.timeout_answer", "only a question takes an answer"),
        (f"{{ {LEAD}, on: {{ timeout: draft }} }}", "d.on.timeout", "waits for ever"),
        (f"{{ {LEAD}, timeout: 1h, on: {{ timeout: d }} }}", "d.on.timeout", "cannot go on at itself"),
        (f"{{ {LEAD}, timeout: 1h, on: {{ timeout: daft }} }}", "d.on.timeout", "did you mean `draft`?"),
        (f"{{ {LEAD}, timeout: 1h, on: {{ answer: draft }} }}", "d.on.answer", "cannot jump"),
        (f"{{ {QUESTION}, outcomes: [answer, approve] }}", "d.outcomes", "cannot offer `approve`"),
        (f"{{ {QUESTION}, outcomes: [reject] }}", "d.outcomes", "add `answer`"),
        (f"{{ {QUESTION}, approvals: {{ need: 2 }} }}", "d.approvals", "answered, not approved"),
        (f"{{ {QUESTION}, approval_valid_for: 1h }}", "d.approval_valid_for", "answered, not approved"),
        (f"{{ {QUESTION}, timeout_answer: {{ answer: no }} }}", "d.timeout_answer", "it is never taken"),
        (f"{{ {QUESTION}, timeout: 1h, timeout_answer: {{ reply: x }} }}", "d.timeout_answer", "does not fit the form"),
        (f"{{ {QUESTION}, form: schemas/none.json }}", "d.form", "no file"),
        (f"{{ {LEAD}, question: '{{{{args.x}}}}' }}", "d.question", "unknown root"),
        (f"{{ {LEAD}, question: '{{{{steps.later.x}}}}' }}", "d.question", "no step `later`"),
        (f"{{ {LEAD}, question: 'So {{{{context.x}}' }}", "d.question", "without its `}}`"),
        (f"{{ {QUESTION}, on: {{ request_changes: draft }} }}", "d.on.request_changes", "does not offer"),
    ],
)
def test_a_decision_step_after_an_agent_step(step: str, path: str, message: str) -> None:
    assert_one(_some(step, path), 8, f"stages.s.steps.{path}", message)


def _some(step: str, path: str) -> list[tuple[int | None, str, str]]:
    """The problems at a path: an answer of a timeout that does not fit may be wrong in more than one way."""
    found: list[Any] = [one for one in problems_of(steps(DRAFT, step)) if one[1].endswith(path)]
    return found[:1]


def test_a_question_cannot_approve_a_write() -> None:
    found = problems_of(steps(DRAFT, ASK, SEND), **FILES)
    assert_one(found, 9, "stages.s.steps.send.requires_decision", "no decision comes before")
    named = problems_of(steps(DRAFT, ASK, SEND.replace(" }", ", requires_decision: ask }")), **FILES)
    assert_one(named, 9, "stages.s.steps.send.requires_decision", "is a question step")


def test_a_step_that_is_called_like_a_rule_of_four_eyes_must_be_renamed() -> None:
    found = problems_of(steps("{ key: initiator, kind: manual }", f"{{ {LEAD}, not: [initiator] }}"))
    assert_one(found, 8, "stages.s.steps.d.not", "rename it")

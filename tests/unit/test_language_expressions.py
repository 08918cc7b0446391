"""Gate expressions: what they say, and what they refuse to guess."""

import pytest

from contracts.base import JsonObject, JsonValue
from libs.language.expressions import ExpressionError, GateError, evaluate, parse

OUTPUT: JsonObject = {
    "findings": {"blocking": 0, "items": [{"severity": "minor"}], "none": [], "note": None},
    "approved": True,
    "title": "Move a booking",
    "size": "small",
    "with-dash": 1,
}
STEPS: dict[str, JsonValue] = {"design": {"risks": ["late"], "score": 0.5}}
CONTEXT: JsonObject = {"jira_key": "FERRY-142", "priority": 2}
STATE: JsonObject = {"branch": "workflow/1"}


def judge(text: str) -> bool:
    return evaluate(parse(text), output=OUTPUT, steps=STEPS, context=CONTEXT, state=STATE)


@pytest.mark.parametrize(
    "text",
    [
        "findings.blocking == 0",
        "findings.blocking == 0.0",
        "findings.blocking<1",
        "findings.blocking >= -1",
        "0 <= findings.blocking",
        "approved",
        "approved == true",
        "not not approved",
        "exists(findings.items.0.severity)",
        "not exists(findings.items.1)",
        "not exists(findings.note)",
        "not exists(nowhere.at.all)",
        "findings.note == null",
        "findings.blocking != null",
        "len(findings.items) > 0",
        "len(findings.none) == 0",
        "len(title) == 14",
        "len(steps.design.risks) == 1 and steps.design.score <= 0.5",
        'context.jira_key == "FERRY-142"',
        "state.branch == 'workflow/1'",
        'size in ["small", "medium"]',
        "size not in ['large']",
        "not size in ['large']",
        "'minor' not in findings.none",
        '"a" < "b"',
        "with-dash == 1",
        "false or approved and true",
        "(false or approved) and not (findings.blocking > 0)",
        "exists(nowhere) and nowhere.x == 1 or approved",
        r'title != "a \"quoted\"\n\\ text"',
    ],
)
def test_what_holds(text: str) -> None:
    assert judge(text) is True


@pytest.mark.parametrize(
    "text",
    ["findings.blocking != 0", "not approved", "approved and false", "exists(nowhere)", "size in []", "'b' < 'a'"],
)
def test_what_does_not_hold(text: str) -> None:
    assert judge(text) is False


@pytest.mark.parametrize(
    "text, code, named",
    [
        ("findings.blockers == 0", "gate.unset", "findings.blockers"),
        ("steps.build.ok", "gate.unset", "steps.build.ok"),
        ("context.nothing == 1", "gate.unset", "context.nothing"),
        ("len(nowhere) == 0", "gate.unset", "nowhere"),
        ("findings.items.7 == 1", "gate.unset", "findings.items.7"),
        ('findings.blocking == "0"', "gate.type", "a number cannot be compared with text"),
        ("approved == 1", "gate.type", "a boolean cannot be compared with a number"),
        ("approved < 2", "gate.type", "a boolean and a number"),
        ("findings.note < 2", "gate.type", "null"),
        ("findings.items == findings.items", "gate.type", "a list"),
        ("findings.blocking", "gate.type", "a number"),
        ("not title", "gate.type", "text"),
        ("approved and title", "gate.type", "text"),
        ("len(findings.blocking) == 0", "gate.type", "findings.blocking"),
        ("'o' in title", "gate.type", "needs a list"),
        ("1 in ['a']", "gate.type", "a number cannot be compared with text"),
        ("'a' in ['a', 1]", "gate.type", "text cannot be compared with a number"),
    ],
)
def test_what_cannot_be_judged(text: str, code: str, named: str) -> None:
    with pytest.raises(GateError) as caught:
        judge(text)
    assert caught.value.code == code
    assert named in caught.value.message


@pytest.mark.parametrize(
    "text, position",
    [
        ("", 1),
        ("   ", 4),
        ("findings.blocking = 0", 19),
        ("a == ", 6),
        ("a == 1 b", 8),
        ("a < b < c", 7),
        ("(a", 3),
        ("a)", 2),
        ("a ==== 1", 5),
        ("'open", 1),
        (r"'\x41' == a", 1),
        ("and", 1),
        ("a and", 6),
        ("exists('a')", 8),
        ("exists(a, b)", 9),
        ("__import__('os')", 1),
        ("a.b()", 1),
        ("[a]", 2),
        ("[1 2]", 4),
        ("a + 1", 3),
        ("a; b", 2),
        ("lambda: 1", 7),
        ("1e999 == a", 1),
        ("a == 123456789012345678901", 6),
        ("a not b", 7),
        ("é == 1", 1),
    ],
)
def test_what_is_no_expression(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position


@pytest.mark.parametrize("text", ["(" * 60 + "a" + ")" * 60, "not " * 60 + "a", "(not " * 15 + "a" + ")" * 15])
def test_depth_is_limited(text: str) -> None:
    with pytest.raises(ExpressionError, match="nested deeper"):
        parse(text)


def test_size_is_limited_and_a_long_chain_is_not_deep() -> None:
    assert judge(" and ".join(["approved"] * 70))
    with pytest.raises(ExpressionError, match="longer than"):
        parse(" or ".join(["approved"] * 200))


def test_paths_in_reading_order() -> None:
    assert parse("exists(a.b) and len(c) > 0 or not d in [1]").paths == ("a.b", "c", "d")


def test_python_attributes_are_only_paths_that_lead_nowhere() -> None:
    with pytest.raises(GateError) as caught:
        judge("title.__class__ == 1")
    assert caught.value.code == "gate.unset"

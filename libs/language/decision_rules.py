"""What must hold of a decision step: judgements on artefacts, quorums, four eyes, and questions."""

from typing import Final

from contracts.base import JsonObject
from libs.language import nodes
from libs.language.fit import misfits
from libs.language.outline import OUTCOMES_OF_QUESTION, PRODUCERS, Outline, kind_of, offers, path_objection
from libs.language.problems import hint
from libs.language.shapes import Checked, Place
from libs.language.steps import TIMEOUT
from libs.language.templates import check_question

RULES_OF_EYES: Final = ("initiator", "reviser")
"""What `not` may say beside keys of steps."""

DECIDERS: Final = ("decision", "manual", "question")
"""Kinds of steps that a person decides or completes."""

_OF_JUDGEMENTS: Final = ("approvals", "approval_valid_for")
_OF_QUESTIONS: Final = ("timeout_answer",)


def check_decision(step: Checked, position: int, outline: Outline) -> None:
    artifact = step.get("artifact")
    if artifact is not None and (objection := outline.objection(artifact, position, PRODUCERS)):
        step.refuse("artifact", objection)
    outcomes = step.get("outcomes")
    if outcomes is not None and len(set(outcomes)) < len(outcomes):
        step.refuse("outcomes", "an outcome is listed twice")
    _check_on(step, position, outline)
    _check_eyes(step, position, outline)
    if kind_of(step) == "question":
        _check_question(step, position, outline)
    else:
        _check_judgement(step, position, outline)


def check_timeout_answer(step: Checked, form: JsonObject) -> None:
    """Refuse an answer of a timeout that nobody could have given."""
    value = step.get("timeout_answer")
    for item in misfits(value, form, root="timeout_answer") if value is not None else ():
        step.refuse("timeout_answer", f"does not fit the form: {item.path}: {item.message}")


def _check_on(step: Checked, position: int, outline: Outline) -> None:
    for outcome, target in (step.get("on") or {}).items():
        place = _entry(step, "on", outcome)
        if outcome == TIMEOUT:
            _check_timeout_target(step, place, target, position, outline)
        elif outcome != "request_changes":
            place.refuse(f"`{outcome}` cannot jump; only request_changes can, and timeout")
        elif not offers(step, outcome):
            place.refuse("the decision does not offer request_changes; add it to `outcomes`, or remove this")
        elif objection := outline.objection(target, position):
            place.refuse(objection)


def _check_timeout_target(step: Checked, place: Place, target: str, position: int, outline: Outline) -> None:
    found = outline.position(target)
    if "timeout" not in step.given:
        place.refuse("without `timeout` the step waits for ever; add one, or remove this")
    elif "timeout_answer" in step.given:
        place.refuse("there is `timeout_answer` already, with which the run goes on; give one of the two")
    elif found is None:
        keys = [one.get("key") for one in outline.steps if one.get("key")]
        place.refuse(f"no step `{target}`{hint(target, keys)}")
    elif found == position:
        place.refuse("a step that timed out cannot go on at itself; name another step")


def _check_eyes(step: Checked, position: int, outline: Outline) -> None:
    listed = step.get("not") or ()
    if len(set(listed)) < len(listed):
        step.refuse("not", "somebody is listed twice")
    for name in dict.fromkeys(listed):
        if name in RULES_OF_EYES:
            if outline.position(name) is not None:
                step.refuse(
                    "not", f"`{name}` would bar the {name} of the run, not who decided step `{name}`; rename it"
                )
        elif objection := outline.objection(name, position, DECIDERS):
            step.refuse("not", f"{objection}; or say {' or '.join(RULES_OF_EYES)}")


def _check_judgement(step: Checked, position: int, outline: Outline) -> None:
    if "answer" in (step.get("outcomes") or ()):
        step.refuse("outcomes", "only a question is answered; give `question` or `form`, or remove `answer`")
    for key in _OF_QUESTIONS:
        if key in step.given:
            step.refuse(
                key, "only a question takes an answer; give `question` or `form`, or jump with `on: {timeout: …}`"
            )
    for key in _OF_JUDGEMENTS:
        if key in step.given and not offers(step, "approve"):
            step.refuse(key, "the decision does not offer approve; add it to `outcomes`, or remove this")
    if offers(step, "request_changes") and not outline.before(position, *PRODUCERS):
        step.refuse(
            "outcomes",
            "request_changes has no earlier agent, manual or parallel step to redo; put one before, or list the "
            "outcomes without it",
        )
    approvals = step.get("approvals")
    if approvals is not None and (need := approvals.get("need")) is not None:
        for role, of_role in (approvals.get("groups") or {}).items():
            if of_role > need:
                _entry(approvals, "groups", role).refuse(f"more than the {need} that are needed in all; raise `need`")


def _check_question(step: Checked, position: int, outline: Outline) -> None:
    for key in _OF_JUDGEMENTS:
        if key in step.given:
            step.refuse(key, "a question is answered, not approved; remove this, or `question` and `form`")
    outcomes = step.get("outcomes")
    if outcomes is not None:
        for other in [outcome for outcome in outcomes if outcome not in OUTCOMES_OF_QUESTION]:
            step.refuse("outcomes", f"a question cannot offer `{other}`; it offers answer, reject and cancel")
        if "answer" not in outcomes:
            step.refuse("outcomes", "a question that takes no answer asks for nothing; add `answer`")
    if "timeout_answer" in step.given and "timeout" not in step.given:
        step.refuse("timeout_answer", "without `timeout` it is never taken; add one, or remove this")
    for path in check_question(step):
        if objection := path_objection(path, position, outline):
            step.refuse("question", objection)


def _entry(step: Checked, key: str, name: str) -> Place:
    """Where an entry of a mapping stands."""
    place = step.at(key)
    if isinstance(place.node, nodes.Mapping):
        return place.child(name, place.node.entries[name], place.node.lines[name])
    return place

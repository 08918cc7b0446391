"""The order of a workflow's steps, as rules about earlier steps need it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from libs.language.expressions import ROOTS
from libs.language.problems import hint
from libs.language.shapes import Checked

PRODUCERS = frozenset({"agent", "manual", "parallel"})
"""Kinds of steps that make an artefact, which a decision is on and which can be made anew."""

HANDED_OFF = PRODUCERS | {"event", "question", "write"}
"""Kinds of steps whose output later steps can read."""

OUTCOMES_OF_QUESTION = frozenset({"answer", "reject", "cancel"})


def kind_of(step: Checked) -> str | None:
    """The kind of a step as rules about earlier steps see it: a decision that asks a question is a `question`."""
    kind: str | None = step.get("kind")
    return "question" if kind == "decision" and step.given & {"question", "form"} else kind


@dataclass(frozen=True, slots=True)
class Outline:
    """Top-level steps in reading order over all stages. Of a repeated key the first one counts."""

    steps: tuple[Checked, ...]

    @staticmethod
    def of(workflow: Checked) -> "Outline":
        return Outline(tuple(step for stage in workflow.get("stages") or () for step in stage.get("steps") or ()))

    def position(self, key: str) -> int | None:
        return next((i for i, step in enumerate(self.steps) if step.get("key") == key), None)

    def before(self, position: int, *kinds: str) -> tuple[Checked, ...]:
        """Steps of these kinds that come before a position, nearest first."""
        return tuple(step for step in reversed(self.steps[:position]) if kind_of(step) in kinds)

    def objection(self, key: str, position: int, kinds: Iterable[str] = ()) -> str | None:
        """Why `key` does not name a step before `position` of one of `kinds` (of any, when none are given)."""
        found = self.position(key)
        if found is None:
            return f"no step `{key}`{hint(key, self._keys(position))}"
        if found >= position:
            return f"step `{key}` does not come before; name an earlier step{hint('', self._keys(position))}"
        kind, wanted = kind_of(self.steps[found]), sorted(kinds)
        if wanted and kind is not None and kind not in wanted:
            article = "an" if kind[0] in "aeiou" else "a"
            *others, last = wanted
            named = f"{', '.join(others)} or {last}" if others else last
            return f"step `{key}` is {article} {kind} step; name an earlier {named} step"
        return None

    def decision_for(self, write: Checked, position: int) -> str | None:
        """The decision that must be `approve` before a write: the one that it names, else the nearest before it."""
        if named := write.get("requires_decision"):
            return str(named)
        nearest = next(iter(self.before(position, "decision")), None)
        return None if nearest is None else nearest.get("key")

    def _keys(self, position: int) -> list[str]:
        return [step.get("key") for step in self.steps[:position] if step.get("key")]


def offers(decision: Checked, outcome: str) -> bool:
    """Whether a decision offers an outcome. One that lists none offers every judgement, or to a question the answer.

    A list with problems is not judged.
    """
    outcomes = decision.get("outcomes")
    if outcomes is None and kind_of(decision) == "question":
        return outcome == "answer" or "outcomes" in decision.given
    return outcomes is None or outcome in outcomes


def path_objection(path: str, position: int, outline: Outline) -> str | None:
    """What is wrong with a path that must lead into the run, seen from a position."""
    root, _, rest = path.partition(".")
    if root not in ROOTS:
        return f"`{path[:80]}` must start with context, state or steps"
    if not rest:
        return f"`{root}` alone says nothing; name what is meant, such as `{root}.{_EXAMPLES[root]}`"
    if root == "state" and rest != "branch":
        return f"there is no `state.{rest}`; known: state.branch"
    if root == "steps":
        return outline.objection(rest.partition(".")[0], position, HANDED_OFF)
    return None


_EXAMPLES: Final = {"context": "jira_key", "state": "branch", "steps": "design"}

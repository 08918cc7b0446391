"""Scripts of the scripted model: `definitions/workflows/<id>/demo/model.json`, a list of rules for that definition."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from contracts.base import Frozen, JsonValue
from contracts.errors import Malformed
from libs import canonical

_SCRIPT_BYTES_MAX: Final = 4 << 20


class ScriptedError(Frozen):
    """An error in place of an answer, as the provider would send it."""

    status: int = Field(ge=400, le=599)
    type: str = "api_error"
    message: str = "scripted error"


class Rule(Frozen):
    """What to answer, and when: a field of the first group that is null or absent matches everything.

    `text` is answered as it stands, even where a schema asks for JSON: so a script can be wrong on purpose.
    Token counts that are absent are estimated from the texts.
    """

    step: str | None = Field(default=None, description="key of a step, or of a branch of a parallel step")
    round: int | None = Field(default=None, ge=1)
    attempt: int | None = Field(default=None, ge=1)

    output: JsonValue = None
    text: str | None = None
    error: ScriptedError | None = None
    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=1)
    delay_seconds: float = Field(default=0.0, ge=0.0, le=600.0)

    @model_validator(mode="after")
    def _answers_something(self) -> "Rule":
        if self.output is None and self.text is None and self.error is None:
            raise ValueError("a rule needs one of output, text and error")
        return self


@dataclass(frozen=True, slots=True)
class CallScope:
    """What a model request is for, as the headers say. Unknown is None."""

    definition: str | None
    step: str | None
    round: int | None
    attempt: int | None


Scripts = Mapping[str, Sequence[Rule]]
"""Rules by definition id."""

_RULES: Final = TypeAdapter(tuple[Rule, ...])


def load_scripts(definitions: Path) -> dict[str, tuple[Rule, ...]]:
    """Read every workflow's script under a `definitions/` folder. A workflow without one has no rules.

    Raises:
        contracts.errors.Malformed: a script is not a list of rules; with its path and what is wrong with it.
    """
    scripts = {}
    for file in sorted(definitions.glob("workflows/*/demo/model.json")):
        value = canonical.parse(file.read_bytes(), what=str(file), bytes_max=_SCRIPT_BYTES_MAX)
        if not isinstance(value, list):
            meant = 'a list of rules, such as [{"step": "draft", "output": {"title": "A title"}}]'
            raise Malformed("script.invalid", f"{file}: the whole: must be {meant}")
        try:
            scripts[file.parent.parent.name] = _RULES.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"]) or "the whole"
            raise Malformed("script.invalid", f"{file}: {where}: {first['msg']}") from error
    return scripts


def choose(rules: Sequence[Rule], scope: CallScope) -> Rule | None:
    """Return the rule that says most about this call; of two that say as much, the later one. None when none fits."""
    fitting = [(_weight(rule), place) for place, rule in enumerate(rules) if _fits(rule, scope)]
    return rules[max(fitting)[1]] if fitting else None


def _fits(rule: Rule, scope: CallScope) -> bool:
    step = scope.step or ""
    return (
        rule.step in {None, step, step.rpartition(".")[2]}
        and rule.round in {None, scope.round}
        and rule.attempt in {None, scope.attempt}
    )


def _weight(rule: Rule) -> int:
    return sum(field is not None for field in (rule.step, rule.round, rule.attempt))


__all__ = ["CallScope", "Rule", "ScriptedError", "Scripts", "choose", "load_scripts"]

"""A run of a definition in memory, on a clock of its own: what it would do, with nothing done.

The decider is the planner's own. What others would answer is given or made up: agents hand off a given output or the
smallest one that their schema takes, people approve, events come at once, writes are noted and not made.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from contracts import ids
from contracts.base import Actor, BlobRef, Event, JsonObject, JsonValue, Principal
from contracts.errors import Rejected
from contracts.events import admission as ad
from contracts.events import attempt as at
from contracts.events import decision as de
from contracts.events import effect as ef
from contracts.events import run as r
from contracts.events import wait as wa
from contracts.requests import AttemptRequest
from libs.canonical import blob
from libs.domain import attempt, decision, effect, run, wait
from libs.domain.access import ADMINISTRATOR
from libs.domain.categories import CATEGORIES
from libs.domain.core import Decided
from libs.domain.run import starting
from libs.domain.run.commands import Child
from libs.domain.run.walk import Walk
from libs.language.fit import misfits
from libs.language.model import AgentStep, Bundle, Definition, ManualStep, Step
from libs.pricing import PriceTable
from minutebook.models.states import DecisionOutcome
from services.api.words import describe
from services.dev.minimal_instance import minimal_instance

TURNS_MAX: Final = 2_000
"""Answers after which a simulation gives up: it goes round in circles."""

CHARS_PER_TOKEN: Final = 4

_PROJECT: Final = "simulated"
_GROUP: Final = UUID(int=1)
_CLAIM: Final = UUID(int=2)
_NOBODY: Final = Actor(kind="system", name="the simulation")
_SILENT: Final = (r.RunParked, r.RunUnparked)


@dataclass(frozen=True, slots=True)
class Script:
    """What is known beforehand. `outputs` by step, `<step>.<branch>`, or `<step>#<round>` where rounds differ.

    `answers` by decision step, in order; further ones approve.
    """

    context: JsonObject = field(default_factory=dict)
    variant: str | None = None
    outputs: Mapping[str, JsonValue] = field(default_factory=dict)
    answers: Mapping[str, tuple[DecisionOutcome, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Told:
    """A fact in words, with the time that had passed on the simulation's clock."""

    after: timedelta
    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    step: str
    role: str
    outcome: DecisionOutcome


@dataclass(frozen=True, slots=True)
class Waited:
    """What a step waited for, and how long; people and events come at once."""

    step: str
    on: str
    seconds: float


@dataclass(frozen=True, slots=True)
class WouldWrite:
    """A call that a real run would make, once."""

    step: str
    system: str
    tool: str
    key: str
    arguments: JsonValue


@dataclass(slots=True)
class Outcome:
    """How the run went. `unpriced` are models that have no price, so their calls count nothing."""

    state: str = "absent"
    outcome: str | None = None
    reason: str | None = None
    path: list[Told] = field(default_factory=list)
    decisions: list[Answered] = field(default_factory=list)
    waits: list[Waited] = field(default_factory=list)
    writes: list[WouldWrite] = field(default_factory=list)
    took: timedelta = timedelta(0)
    cost_microdollars: int = 0
    unpriced: set[str] = field(default_factory=set)

    @property
    def ok(self) -> bool:
        return self.state == "completed"


def simulate(bundle: Bundle, script: Script, *, at_: datetime) -> Outcome:
    """Walk a definition to its end, or to where only an operator could let it go on.

    Raises:
        contracts.errors.Rejected: a start with this context or variant would be refused.
    """
    simulation = _Simulation(bundle, script, at_)
    simulation.start()
    for _ in range(TURNS_MAX):
        if not simulation.turn():
            break
    else:
        simulation.told.reason = f"given up after {TURNS_MAX} answers: it goes round in circles"
    return simulation.outcome()


class _Simulation:
    """One run, its children and their content."""

    def __init__(self, bundle: Bundle, script: Script, now: datetime) -> None:
        self._bundle = bundle
        self._script = script
        self._began = self._now = now
        self._definition = starting.definition_of(run.Evidence(bundle=bundle), starting.plain_variant(script.variant))
        self._run_id = ids.derive("run", _GROUP, bundle.hash)
        self._state = run.CATEGORY.initial
        self._children: dict[UUID, Child] = {}
        self._content: dict[str, JsonValue] = {}
        self._answered: dict[str, int] = {}
        self._verdict: Event | None = None
        self._prices = PriceTable()
        self._principal = _everybody(self._definition)
        self.told = Outcome()

    def start(self) -> None:
        """Create the run as a trigger would, and plan it to its first wait."""
        evidence = self._evidence()
        context: JsonObject = {**self._definition.context_defaults, **self._script.context}
        starting.must_be_admissible(self._definition, evidence, context)
        walk = Walk(self._run_id, self._now, self._state, evidence, self._definition)
        walk.emit(
            starting.created(
                walk,
                BlobRef(digest=self._bundle.hash, bytes=0),
                self._principal,
                context,
                project_id=_PROJECT,
                variant=starting.plain_variant(self._script.variant),
            )
        )
        self._take(walk.decided())
        self._advance()

    def turn(self) -> bool:
        """Let one thing happen that the run waits for; False when nothing can."""
        if self._state.status in {"completed", "failed", "cancelled", "superseded", "suspended"}:
            return False
        if self._state.admission is not None and not self._state.started and self._verdict is None:
            asked = self._state.admission
            self._verdict = ad.AdmissionGranted(
                at=self._now,
                run_id=self._run_id,
                definition_id=self._definition.id,
                key=asked.key,
                limit=asked.limit,
            )
            self._advance()
            return True
        if any(self._answer(key, record) for key, record in self._state.steps.items()):
            self._advance()
            return True
        return self._let_time_pass()

    def outcome(self) -> Outcome:
        self.told.state = self._state.status
        self.told.outcome = self._state.outcome
        self.told.reason = self.told.reason or self._state.reason
        self.told.took = self._now - self._began
        self.told.cost_microdollars = self._state.cost_microdollars
        return self.told

    def _answer(self, key: str, record: run.StepRecord) -> bool:
        """Answer what a step waits for; False when it waits for nobody."""
        if record.status == "waiting" and record.waits_on == "manual":
            self._complete(key, record)
            return True
        child = self._children.get(record.open_id) if record.open_id else None
        if record.open_id is None or child is None:
            return False
        match child:
            case attempt.State() if record.status == "queued" and child.status == "queued":
                facts = self._work(key, record, child)
            case decision.State() if child.status == "open":
                facts = [self._decide(key, record, child)]
            case wait.State() if child.status == "opening":
                facts = [self._event(key, record, child)]
            case effect.State() if record.status == "writing" and child.status == "declared":
                facts = self._write(key, record, child)
            case _:
                return False
        self._children[record.open_id] = CATEGORIES[_category(child)].fold(tuple(facts), child)
        return True

    def _work(self, key: str, record: run.StepRecord, child: attempt.State) -> list[Event]:
        """An attempt: the given output, else the smallest that its schema takes, at the price of its length."""
        step = self._step(key)
        assert isinstance(step, AgentStep)
        assert child.request is not None
        schema = self._bundle.schemas.get(step.output or "")
        output = self._given(key, record.round)
        if output is None:
            output = minimal_instance(schema) if schema is not None else {}
        request = AttemptRequest.model_validate(self._content[child.request.digest])
        usage = at.Usage(input_tokens=_tokens(request.prompt), output_tokens=_tokens(json.dumps(output)))
        cost = 0
        if request.model is not None:
            priced = self._prices.cost(request.model, usage)
            if priced is None:
                self.told.unpriced.add(request.model)
            cost = priced or 0
        metered = {"usage": usage, "cost_microdollars": cost, "model": request.model, "turns": 1}
        started = at.AttemptStarted(at=self._now, claim=_CLAIM, runner=_NOBODY.name)
        wrong = misfits(output, schema, root="output")
        if wrong:
            message = "; ".join(f"{item.path}: {item.message}" for item in wrong)
            failed = {
                "at": self._now,
                "claim": _CLAIM,
                "failure_class": "output_invalid",
                "message": message,
                **metered,
            }
            return [started, at.AttemptFailed.model_validate(failed)]
        done = {"at": self._now, "claim": _CLAIM, "output": self._keep(output), **metered}
        return [started, at.AttemptSucceeded.model_validate(done)]

    def _decide(self, key: str, record: run.StepRecord, child: decision.State) -> Event:
        number = self._answered.get(key, 0)
        self._answered[key] = number + 1
        given = self._script.answers.get(key, ())
        outcome: DecisionOutcome = given[number] if number < len(given) else _usual(record, child)
        if outcome not in child.outcomes:
            offered = ", ".join(child.outcomes)
            raise Rejected("decision.outcome", f"{key} offers {offered} this time, not {outcome!r}")
        self.told.decisions.append(Answered(key, child.role, outcome))
        answer = self._said(key, record, child) if outcome == "answer" else None
        return de.DecisionAnswered(
            at=self._now,
            command_id=ids.derive("answer", self._run_id, key, number),
            outcome=outcome,
            by=Actor(kind="user", id=self._principal.id, name=child.role),
            comment=None if outcome in {"approve", "answer"} else "as the simulation was told",
            artifact=child.artifact,
            revised=None,
            answer=answer,
        )

    def _said(self, key: str, record: run.StepRecord, child: decision.State) -> BlobRef:
        """The answer to a question: the given output, else the smallest that its form takes."""
        assert child.form is not None, "a question has a form"
        form, given = self._content[child.form.digest], self._given(key, record.round)
        assert isinstance(form, dict), "a form is a schema"
        answer = minimal_instance(form) if given is None else given
        wrong = "; ".join(f"{item.path}: {item.message}" for item in misfits(answer, form, root=key))
        if wrong:
            raise Rejected("decision.answer", f"the answer does not fit the form of {key}: {wrong}")
        return self._keep(answer)

    def _event(self, key: str, record: run.StepRecord, child: wait.State) -> Event:
        """The given event, as the step's output has it, else the smallest that matches."""
        given = self._given(key, record.round)
        event: dict[str, Any] = dict(given) if isinstance(given, dict) else {}
        asked = {name: value[0] if isinstance(value, list) else value for name, value in child.match.items()}
        self.told.waits.append(Waited(key, f"an event of {child.source}", 0))
        return wa.WaitMatched(
            at=self._now,
            inbound_id=ids.inbound(child.source, f"{key}#{record.round}"),
            external_id=str(event.get("external_id", "simulated")),
            event=str(event.get("event", asked.pop("event", "simulated"))),
            keys=event.get("keys", asked),
            payload=self._keep(event.get("payload", {})),
        )

    def _write(self, key: str, record: run.StepRecord, child: effect.State) -> list[Event]:
        assert child.arguments is not None
        arguments = self._content[child.arguments.digest]
        self.told.writes.append(WouldWrite(key, child.system, child.tool, child.key, arguments))
        response = self._given(key, record.round)
        return [
            ef.EffectPending(at=self._now, claim=_CLAIM, arm=record.arm, over_at=self._now + effect.CALL_TIMEOUT_MAX),
            ef.EffectSucceeded(
                at=self._now, claim=_CLAIM, reference=None, response=self._keep({} if response is None else response)
            ),
        ]

    def _complete(self, key: str, record: run.StepRecord) -> None:
        """A person completes a manual step: with the given artefact, else with the smallest that its schema takes."""
        step = self._step(key)
        assert isinstance(step, ManualStep)
        artifact = self._given(key, record.round)
        if artifact is None:
            schema = self._bundle.schemas.get(step.output or "")
            artifact = minimal_instance(schema) if schema is not None else {}
        self.told.waits.append(Waited(key, record.role or "its initiator", 0))
        command = run.Complete(
            run_id=self._run_id,
            step=key,
            command_id=ids.derive("complete", self._run_id, key, record.round),
            artifact=artifact,
            comment=None,
            principal=self._principal,
            evidence=self._evidence(),
        )
        self._take(run.decide(command, self._state, self._now))

    def _let_time_pass(self) -> bool:
        """Go to the next moment at which a step begins or is tried again."""
        waiting = {
            key: record.not_before
            for key, record in self._state.steps.items()
            if record.status in {"delayed", "retrying"} and record.not_before is not None
        }
        if not waiting:
            return False
        key, until = min(waiting.items(), key=lambda item: item[1])
        self.told.waits.append(Waited(key, f"{until:%Y-%m-%d %H:%M:%S}", (until - self._now).total_seconds()))
        self._now = max(until, self._now)
        self._advance()
        return True

    def _given(self, key: str, round_: int) -> JsonValue:
        """The output that the script has for a step; items may have one for all of them."""
        for name in (f"{key}#{round_}", key, f"{key.split('.')[0]}.*"):
            if name in self._script.outputs:
                return self._script.outputs[name]
        return None

    def _step(self, key: str) -> Step:
        return Walk.of(self._run_id, self._now, self._state, self._evidence()).step_of(key)

    def _evidence(self) -> run.Evidence:
        return run.Evidence(
            tenant_group=_GROUP,
            bundle=self._bundle,
            children=self._children,
            artefacts=self._content,
            verdict=self._verdict,
        )

    def _advance(self) -> None:
        command = run.Advance(run_id=self._run_id, evidence=self._evidence())
        self._take(run.decide(command, self._state, self._now))

    def _take(self, decided: Decided) -> None:
        self._state = run.CATEGORY.fold(decided.events, self._state)
        for digest, content in decided.blobs.items():
            self._content[digest] = json.loads(content)
        for birth in decided.births:
            self._children.setdefault(birth.stream_id, CATEGORIES[birth.category].fold((birth.event,)))
        self.told.path += [
            Told(self._now - self._began, describe(event, birth=event, actor=_NOBODY))
            for event in decided.events
            if not isinstance(event, _SILENT)
        ]

    def _keep(self, value: JsonValue) -> BlobRef:
        ref, _ = blob(value)
        self._content[ref.digest] = value
        return ref


def _category(child: Child) -> str:
    match child:
        case attempt.State():
            return attempt.CATEGORY.name
        case decision.State():
            return decision.CATEGORY.name
        case wait.State():
            return wait.CATEGORY.name
        case effect.State():
            return effect.CATEGORY.name


def _usual(record: run.StepRecord, child: decision.State) -> DecisionOutcome:
    """What people answer who were told nothing: yes; but not that a step be tried again that would fail again."""
    if "answer" in child.outcomes:
        return "answer"
    hopeless = record.waits_on == "escalation" and record.failure_class != "gate_failed"
    return "reject" if hopeless else "approve"


def _everybody(definition: Definition) -> Principal:
    """Somebody who holds every role that the definition names."""
    bindings = definition.roles.values()
    unbound = {step.role for step in definition.steps if isinstance(step, ManualStep) and step.role}
    return Principal(
        kind="user",
        id=UUID(int=3),
        name=_NOBODY.name,
        tenant_group=_GROUP,
        tenant=_GROUP,
        roles=frozenset({ADMINISTRATOR, *unbound, *(role for binding in bindings for role in binding.roles)}),
        groups=frozenset(group for binding in bindings for group in binding.groups),
        projects=frozenset({_PROJECT}),
    )


def _tokens(text: str) -> int:
    """About how many tokens a text has."""
    return -(-len(text) // CHARS_PER_TOKEN)

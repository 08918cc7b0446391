"""A world in memory for the run's decider: children answer as the test tells them, facts fold as they would."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from contracts.base import Actor, BlobRef, Event, JsonObject, JsonValue, Principal
from contracts.events.run import Trigger
from libs.canonical import blob
from libs.domain import attempt, effect, run
from libs.domain.categories import CATEGORIES
from libs.domain.core import Decided
from libs.domain.run.commands import Child
from libs.language.model import (
    AgentStep,
    Bundle,
    DecisionStep,
    Definition,
    EventStep,
    GateStep,
    Limits,
    ManualStep,
    ManualTrigger,
    ParallelStep,
    Stage,
    Step,
    WriteStep,
)

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
GROUP = uuid4()
DEVELOPER = Principal(
    kind="user",
    id=uuid4(),
    name="dev@example.com",
    tenant_group=GROUP,
    tenant=uuid4(),
    roles=frozenset({"developer"}),
    projects=frozenset({"core"}),
)
STRANGER = DEVELOPER.model_copy(update={"id": uuid4(), "name": "stranger@example.com", "projects": frozenset()})


def bundle_of(*steps: Step, **changes: object) -> Bundle:
    """A definition of one stage with these steps."""
    definition = Definition(
        id="trial",
        name="Trial",
        triggers=(ManualTrigger(roles=("developer",)),),
        stages=(Stage(key="only", steps=steps),),
        limits=Limits(max_attempts=2, max_loop=1, wall_clock=timedelta(hours=1)),
    )
    prompts = {"p.md": "Do the work."}
    return Bundle(definition=definition.model_copy(update=changes), prompts=prompts, hash="0" * 64)


def agent(key: str, **fields: object) -> AgentStep:
    return AgentStep.model_validate({"key": key, "prompt": "p.md", **fields})


def review(key: str, **fields: object) -> DecisionStep:
    return DecisionStep.model_validate({"key": key, "role": "lead", **fields})


def both(key: str, *branches: AgentStep, **fields: object) -> ParallelStep:
    return ParallelStep.model_validate({"key": key, "parallel": branches, **fields})


def manual(key: str, **fields: object) -> ManualStep:
    return ManualStep.model_validate({"key": key, **fields})


def event(key: str, **fields: object) -> EventStep:
    return EventStep.model_validate({"key": key, "source": "github", "match": {"event": "merged"}, **fields})


def gate(key: str, expression: str, **fields: object) -> GateStep:
    return GateStep.model_validate({"key": key, "gate": expression, **fields})


def write(key: str, **fields: object) -> WriteStep:
    values = {"key": key, "system": "github", "tool": "create_pull_request", "effect_key": "pr:{{context.jira_key}}"}
    return WriteStep.model_validate(values | fields)


@dataclass
class World:
    """One run and its children."""

    bundle: Bundle
    run_id: UUID = field(default_factory=uuid4)
    now: datetime = START
    state: run.State = run.CATEGORY.initial
    children: dict[UUID, Child] = field(default_factory=dict)
    artefacts: dict[str, JsonValue] = field(default_factory=dict)
    types: list[str] = field(default_factory=list)
    ready: dict[UUID, str] = field(default_factory=dict)
    verdict: Event | None = None
    told: dict[str, str] = field(default_factory=dict)
    length: int = 0

    def start(
        self, context: JsonObject | None = None, principal: Principal = DEVELOPER, variant: str | None = None
    ) -> "World":
        command = run.Create(
            run_id=self.run_id,
            definition_id="trial",
            principal=principal,
            evidence=run.Evidence(tenant_group=GROUP, bundle=self.bundle),
            bundle=BlobRef(digest="1" * 64, bytes=2),
            context={"jira_key": "CORE-1"} if context is None else context,
            trigger=Trigger(kind="manual"),
            project_id="core",
            variant=variant,
        )
        self.take(run.decide(command, self.state, self.now))
        return self

    def evidence(self) -> run.Evidence:
        return run.Evidence(
            tenant_group=GROUP,
            bundle=self.bundle,
            children=self.children,
            artefacts=self.artefacts,
            verdict=self.verdict,
            told=self.told,
            length=self.length,
        )

    def advance(self, later: timedelta = timedelta(0)) -> "World":
        self.now += later
        self.take(run.decide(run.Advance(run_id=self.run_id, evidence=self.evidence()), self.state, self.now))
        return self

    def retry(self, step: str) -> "World":
        """The initiator has a failed step tried once more."""
        return self.command(
            run.RetryStep(run_id=self.run_id, step=step, principal=DEVELOPER, evidence=self.evidence()),
        )

    def resume(self) -> "World":
        return self.command(run.Resume(run_id=self.run_id, principal=DEVELOPER, evidence=self.evidence()))

    def suspend(self) -> "World":
        return self.command(run.Suspend(principal=DEVELOPER, reason="pause"))

    def command(self, command: run.RunCommand) -> "World":
        self.take(run.decide(command, self.state, self.now))
        return self

    def complete(
        self,
        step: str,
        artifact: JsonValue,
        *,
        principal: Principal = DEVELOPER,
        command_id: UUID | None = None,
    ) -> "World":
        """A person completes a manual step."""
        return self.command(
            run.Complete(
                run_id=self.run_id,
                step=step,
                command_id=command_id or uuid4(),
                artifact=artifact,
                comment=None,
                principal=principal,
                evidence=self.evidence(),
            )
        )

    def matched(self, step: str, payload: JsonValue, event: str = "merged") -> "World":
        """An event matches the wait of a step."""
        changes = {"inbound_id": uuid4(), "external_id": "e-1", "event": event, "keys": {}}
        self._child(step, status="matched", payload=self.keep(payload), **changes)
        return self.advance()

    def take(self, decided: Decided) -> None:
        self.types += [type(event).__name__.removeprefix("Run") for event in decided.events]
        self.state = run.CATEGORY.fold(decided.events, self.state)
        for content in decided.blobs.values():
            self.keep_bytes(content)
        for birth in decided.births:
            if birth.stream_id not in self.children:
                self.children[birth.stream_id] = CATEGORIES[birth.category].fold((birth.event,))
        self.ready.update(decided.ready)

    def keep_bytes(self, content: bytes) -> None:
        import hashlib
        import json

        self.artefacts[hashlib.sha256(content).hexdigest()] = json.loads(content)

    def keep(self, value: JsonValue) -> BlobRef:
        ref, content = blob(value)
        self.keep_bytes(content)
        return ref

    def open_id(self, step: str) -> UUID:
        found = self.state.step(step).open_id
        assert found is not None, f"nothing is open for {step}"
        return found

    def succeed(self, step: str, output: JsonValue, cost: int = 10) -> "World":
        """The attempt of a step succeeds."""
        self._child(step, status="succeeded", output=self.keep(output), cost_microdollars=cost)
        return self.advance()

    def fail(self, step: str, failure_class: str = "default", message: str = "it broke") -> "World":
        """The attempt or effect of a step fails."""
        record = self.state.step(step)
        extra = {"arm": record.arm} if record.status == "writing" else {}
        self._child(step, status="failed", failure_class=failure_class, message=message, **extra)
        return self.advance()

    def answer(self, step: str, outcome: str, *, comment: str | None = None, revised: JsonValue = None) -> "World":
        by = Actor(kind="user", id=uuid4(), name="lena@example.com")
        ref = self.keep(revised) if revised is not None else None
        self._child(step, status="answered", outcome=outcome, comment=comment, by=by, revised=ref)
        return self.advance()

    def written(self, step: str, response: JsonValue) -> "World":
        self._child(step, status="succeeded", response=self.keep(response), reference="PR-1")
        return self.advance()

    def _child(self, step: str, **changes: object) -> None:
        stream_id = self.open_id(step)
        self.children[stream_id] = replace(self.children[stream_id], **changes)  # type: ignore[arg-type]

    def prompt(self, step: str) -> str:
        """What the open attempt of a step is told."""
        child = self.children[self.open_id(step)]
        assert isinstance(child, attempt.State)
        assert child.request is not None
        request = self.artefacts[child.request.digest]
        assert isinstance(request, dict)
        return str(request["prompt"])

    def arguments(self, step: str) -> Mapping[str, JsonValue]:
        """What the declared effect of a step would send."""
        child = self.children[self.open_id(step)]
        assert isinstance(child, effect.State)
        assert child.arguments is not None
        arguments = self.artefacts[child.arguments.digest]
        assert isinstance(arguments, dict)
        return arguments

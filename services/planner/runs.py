"""Runs: asks from the door, and everything that may move a run on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, cast
from uuid import UUID

from contracts.base import Event
from contracts.commands import (
    CancelRun,
    Command,
    CompleteStep,
    ForkRun,
    RestartRun,
    ResumeRun,
    RetryStep,
    RunToStart,
    StartRun,
    StartRuns,
    SuspendRun,
)
from contracts.envelope import Address
from contracts.errors import Broken, MinutebookError, Rejected, refusal
from contracts.events.run import RunStepFailed, RunStepRetrying, RunStepSucceeded, Trigger
from contracts.replies import Reply, RunChanged, RunsStarted
from libs.domain import run
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import Load, Store, nothing_of
from libs.ids import mint
from libs.owner import Done, Item, Owner, Publisher
from libs.process import actor
from libs.telemetry import metrics
from minutebook.models.states import RunState
from services.planner.admissions import Admissions
from services.planner.current import CurrentVersions, Key, Versions
from services.planner.descendants import Descendants
from services.planner.evidence import EvidenceReader, children

PLANS_IN_A_ROW_MAX: Final = 20
"""How often a run is planned again at once because what it gave birth to existed already."""

_PLANNED: Final = (run.Advance, run.Resume, run.RetryStep, run.Complete)
"""Commands that plan on what became of the run's children."""

_PLANNED_AT_BIRTH: Final = frozenset({"run.created"})
"""No news to anybody: a run that begins here is planned in the statement that makes it."""

_KNOWN_OF_WRITES: Final = frozenset({"effect.succeeded", "effect.failed", "effect.settled"})
"""What ends a doubt: a late answer, or a verdict."""

DETAIL_CHARS_MAX: Final = 400
ERRORS_SHOWN_MAX: Final = 3


class Runs:
    """The owner of `run`. A run that has `stream_events_max` facts is suspended in place of its next plan."""

    def __init__(self, store: Store, publisher: Publisher, *, stream_events_max: int = run.STREAM_EVENTS_MAX) -> None:
        self._store = store
        self._stream_events_max = stream_events_max
        self._admissions = Admissions(store)
        self._evidence = EvidenceReader(store, self._admissions)
        self._current = CurrentVersions(store)
        self._descendants = Descendants(store, self._current, self._evidence)
        self._owner: Owner[run.State, run.RunCommand] = Owner(
            run.CATEGORY,
            run.decide,
            store=store,
            publisher=publisher,
            categories=CATEGORIES,
            prepare=self._prepare,
            beside=lambda command, state: children(state) if isinstance(command, _PLANNED) else (),
            observe=_measure,
            quiet=_PLANNED_AT_BIRTH,
        )

    async def start(self, asks: Sequence[StartRun]) -> Sequence[RunChanged | MinutebookError]:
        """Start runs by hand; the same run id again answers the same run."""
        return await self._start([(ask, ask) for ask in asks])

    async def start_many(self, ask: StartRuns) -> RunsStarted:
        """Start many runs of one definition, each answered by itself."""
        outcomes = await self._start([(ask, each) for each in ask.runs])
        return RunsStarted(runs=tuple(_reply(outcome) for outcome in outcomes))

    async def cancel(self, ask: CancelRun) -> RunChanged:
        return await self._ask(ask, run.Cancel(principal=ask.principal, reason=ask.reason))

    async def suspend(self, ask: SuspendRun) -> RunChanged:
        return await self._ask(ask, run.Suspend(principal=ask.principal, reason=ask.reason))

    async def resume(self, ask: ResumeRun) -> RunChanged:
        return await self._ask(ask, run.Resume(run_id=ask.run_id, principal=ask.principal, evidence=run.NO_EVIDENCE))

    async def retry(self, ask: RetryStep) -> RunChanged:
        command = run.RetryStep(run_id=ask.run_id, step=ask.step, principal=ask.principal, evidence=run.NO_EVIDENCE)
        return await self._ask(ask, command)

    async def complete(self, ask: CompleteStep) -> RunChanged:
        """Complete a manual step; the same command again is answered alike."""
        command = run.Complete(
            run_id=ask.run_id,
            step=ask.step,
            command_id=ask.command_id,
            artifact=ask.artifact,
            comment=ask.comment,
            principal=ask.principal,
            evidence=run.NO_EVIDENCE,
        )
        return await self._ask(ask, command)

    async def restart(self, ask: RestartRun) -> RunChanged:
        """Start a new run with what another one was started with, on the version that new runs take now."""
        return await self._new(ask, await self._descendants.restart(ask))

    async def fork(self, ask: ForkRun) -> RunChanged:
        """Start a new run from a point of another one's history."""
        return await self._new(ask, await self._descendants.fork(ask))

    async def on_facts(self, type_: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """Something happened to runs or to what they wait for: look at each run once.

        A fact of a concurrency key belongs to no run: it says itself which one it is about.
        """
        if type_.startswith("admission."):
            runs = await self._admissions.runs_of(facts)
            failures = await self.plan(runs) if runs else {}
            # Which of a key's runs failed does not matter: its facts are told again, and the others say nothing new.
            return {fact.stream_id: error for error in failures.values() for fact in facts}
        runs = {fact.correlation: fact.traceparent for fact in facts}
        failures = dict(await self.plan(runs))
        if type_ in _KNOWN_OF_WRITES:
            # A fork that took over a doubt with its parent's write stands for it, and nobody else tells it.
            forks = await self._store.forks_of(runs, states={"suspended"})
            for error in (await self.plan(dict.fromkeys(forks))).values():
                failures |= {fact.correlation: error for fact in facts}
        return failures

    async def on_wake(self, _category: str, stream_ids: Sequence[UUID]) -> Mapping[UUID, MinutebookError]:
        """The clock says that these runs are due."""
        return await self.plan(dict.fromkeys(stream_ids))

    async def plan(self, run_ids: Mapping[UUID, str | None]) -> Mapping[UUID, MinutebookError]:
        """Plan runs to quiescence; answers the failures. A conflict or an unavailable store is worth another try."""
        failures: dict[UUID, MinutebookError] = {}
        todo = dict(run_ids)
        for _ in range(PLANS_IN_A_ROW_MAX):
            items: list[Item[run.RunCommand]] = [
                Item(
                    stream_id=run_id,
                    command=run.Advance(run_id=run_id, evidence=run.NO_EVIDENCE),
                    actor=actor("planner"),
                    causation=mint(),
                    traceparent=traceparent,
                )
                for run_id, traceparent in todo.items()
            ]
            results = await self._owner.handle(items)
            failures |= {
                item.stream_id: result
                for item, result in zip(items, results, strict=True)
                if isinstance(result, MinutebookError)
            }
            again = {r.stream_id for r in results if isinstance(r, Done) and r.skipped}
            todo = {run_id: traceparent for run_id, traceparent in todo.items() if run_id in again}
            if not todo:
                return failures
        endless = Broken("plan.endless", f"still being planned after {PLANS_IN_A_ROW_MAX} plans in a row")
        return failures | dict.fromkeys(todo, endless)

    async def _start(
        self, starts: Sequence[tuple[StartRun | StartRuns, StartRun | RunToStart]]
    ) -> list[RunChanged | MinutebookError]:
        """Start each (ask, run of it), all in one append."""
        now, current = await self._current.read({_key(ask) for ask, _ in starts})
        items: dict[int, Item[run.RunCommand]] = {}
        outcomes: dict[int, RunChanged | MinutebookError] = {}
        for index, (ask, each) in enumerate(starts):
            try:
                command = await self._creation(ask, each, current.get(_key(ask)))
            except (Rejected, Broken) as error:
                outcomes[index] = error
            else:
                items[index] = _item(ask, each.run_id, command)
        outcomes.update(zip(items, await self._begin(list(items.values()), now), strict=True))
        return [outcomes[index] for index in range(len(starts))]

    async def _begin(self, items: Sequence[Item[run.RunCommand]], now: datetime) -> list[RunChanged | MinutebookError]:
        """Carry starts out without a look at their runs, which are new but for a start that is sent again.

        That one loses its gate, or is refused as if it were new: only then it is read, and judged as what it is.
        """
        new = Load(now, {item.stream_id: nothing_of(item.stream_id) for item in items})
        outcomes = await self._changed(items, loaded=new)
        refused = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, Rejected)]
        if refused:
            for index, outcome in zip(refused, await self._changed([items[i] for i in refused]), strict=True):
                outcomes[index] = outcome
        return outcomes

    async def _creation(
        self, ask: StartRun | StartRuns, each: StartRun | RunToStart, versions: Versions | None
    ) -> run.Create:
        if versions is None:
            raise Rejected("definition.not_found", f"there is no definition {ask.definition_id!r}", status=404)
        group = ask.principal.tenant_group
        version = versions.of(each.run_id)
        bundle = await self._evidence.bundle(group, version.bundle)
        return run.Create(
            run_id=each.run_id,
            definition_id=ask.definition_id,
            principal=ask.principal,
            evidence=run.Evidence(tenant_group=group, bundle=bundle),
            bundle=version.bundle,
            context=each.context,
            trigger=Trigger(kind="manual"),
            project_id=each.project_id,
            variant=each.variant,
        )

    async def _new(self, ask: RestartRun | ForkRun, command: run.Restart | run.Fork) -> RunChanged:
        """Carry out a command that makes a run of another one."""
        (outcome,) = await self._changed([_item(ask, ask.new_run_id, command)])
        if isinstance(outcome, MinutebookError):
            raise outcome
        return outcome

    async def _ask(
        self, ask: CancelRun | SuspendRun | ResumeRun | RetryStep | CompleteStep, command: run.RunCommand
    ) -> RunChanged:
        (outcome,) = await self._changed([_item(ask, ask.run_id, command)])
        if isinstance(outcome, MinutebookError):
            raise outcome
        return outcome

    async def _changed(
        self, items: Sequence[Item[run.RunCommand]], *, loaded: Load | None = None
    ) -> list[RunChanged | MinutebookError]:
        """Carry commands out, and plan on what was skipped. `loaded` are their runs, where they are known."""
        results = await self._owner.handle(items, loaded=loaded)
        skipped = {
            item.stream_id: item.traceparent
            for item, result in zip(items, results, strict=True)
            if isinstance(result, Done) and result.skipped
        }
        if skipped:
            await self.plan(skipped)
        return [
            result
            if isinstance(result, MinutebookError)
            else RunChanged(run_id=result.stream_id, version=result.version, state=cast(RunState, result.state.status))
            for result in results
        ]

    async def _prepare(
        self, batch: Sequence[tuple[Item[run.RunCommand], run.State, UUID | None]], load: Load
    ) -> Sequence[run.RunCommand | MinutebookError]:
        """Complete commands that plan with the evidence that their runs need, read for all of them at once."""
        commands: list[run.RunCommand | MinutebookError] = [item.command for item, _, _ in batch]
        needing: dict[int, tuple[UUID, UUID, run.State]] = {}
        for index, (item, state, group) in enumerate(batch):
            if not isinstance(item.command, _PLANNED):
                continue
            if group is None or (item.tenant_group is not None and item.tenant_group != group):
                commands[index] = Rejected("run.not_found", "there is no such run", status=404)
            else:
                needing[index] = (group, item.stream_id, state)
        evidence = await self._evidence.read(list(needing.values()), load)
        for index, read in zip(needing, evidence, strict=True):
            item = batch[index][0]
            length = load.streams[item.stream_id].version
            read = replace(read, length=length, length_max=self._stream_events_max)
            commands[index] = replace(item.command, evidence=read)  # type: ignore[arg-type]  # filtered above
        await self._measure_keys(commands)
        return commands

    async def _measure_keys(self, commands: list[run.RunCommand | MinutebookError]) -> None:
        """Tell starts how full the concurrency key is that they will ask for."""
        wanted = {
            index: key_id
            for index, command in enumerate(commands)
            if isinstance(command, run.Create | run.Restart | run.Fork) and (key_id := run.key_id_of(command))
        }
        states = await self._admissions.states(set(wanted.values())) if wanted else {}
        for index, key_id in wanted.items():
            command = commands[index]
            assert isinstance(command, run.Create | run.Restart | run.Fork)
            commands[index] = replace(command, evidence=replace(command.evidence, key=states[key_id]))


def _item(ask: Command, run_id: UUID, command: run.RunCommand) -> Item[run.RunCommand]:
    # A start has no state that could refuse one of its asks and take another: it is not held to its deadline again.
    starts = isinstance(ask, StartRun | StartRuns)
    return Item(
        stream_id=run_id,
        command=command,
        actor=ask.principal.actor,
        causation=ask.command_id,
        tenant_group=ask.principal.tenant_group,
        tenant=ask.principal.tenant,
        traceparent=ask.traceparent,
        deadline=None if starts else ask.deadline,
    )


def _key(ask: StartRun | StartRuns) -> Key:
    return ask.principal.tenant_group, ask.definition_id


def _reply(outcome: RunChanged | MinutebookError) -> Reply[RunChanged]:
    """One of many answers, of which all together must fit into a message: a problem is told in its first words."""
    if isinstance(outcome, RunChanged):
        return Reply(result=outcome)
    problem = refusal(outcome)
    short = {"detail": problem.detail[:DETAIL_CHARS_MAX], "errors": problem.errors[:ERRORS_SHOWN_MAX]}
    return Reply(problem=problem.model_copy(update=short))


def _measure(before: run.State, facts: Sequence[Event]) -> None:
    """Measure steps by the facts that were written: what attempts cost, how long steps took that ended."""
    for fact in facts:
        if isinstance(fact, RunStepSucceeded | RunStepRetrying | RunStepFailed):
            metrics.STEP_COST_MICRODOLLARS.inc(fact.cost_microdollars)
        if isinstance(fact, RunStepSucceeded | RunStepFailed):
            record = before.step(fact.step)
            kind = _kind(record)
            if kind is not None and record.since is not None:
                metrics.STEP_SECONDS.labels(kind).observe((fact.at - record.since).total_seconds())


def _kind(open_step: run.StepRecord) -> str | None:
    """The kind of a step that is under way, as definitions name it.

    None for one that never began or has ended, and for a step with items: each of those is measured itself.
    """
    match open_step.status:
        case "queued" if open_step.holds_others:
            return "parallel" if open_step.items is None else None
        case "queued":
            return "agent"
        case "waiting":
            return "decision" if open_step.waits_on == "escalation" else open_step.waits_on
        case "writing":
            return "write"
        case _:
            return None

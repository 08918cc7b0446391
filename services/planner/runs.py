"""Runs: asks from the door, and everything that may move a run on."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from uuid import UUID

from contracts import ids
from contracts.base import Event
from contracts.commands import CancelRun, ResumeRun, RetryStep, StartRun, SuspendRun
from contracts.envelope import Address
from contracts.errors import Broken, MinutebookError, Rejected
from contracts.events.definition import DefinitionSynced
from contracts.events.run import RunStepFailed, RunStepRetrying, RunStepSucceeded, Trigger
from contracts.replies import RunChanged
from libs.domain import run
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import EventStore
from libs.ids import mint
from libs.owner import Done, Item, Owner, Publisher
from libs.process import actor
from libs.telemetry import metrics
from services.planner.evidence import EvidenceReader

PLANS_IN_A_ROW_MAX = 20
"""How often a run is planned again at once because what it gave birth to existed already."""


class Runs:
    """The owner of `run`."""

    def __init__(self, store: EventStore, publisher: Publisher) -> None:
        self._store = store
        self._evidence = EvidenceReader(store)
        self._owner: Owner[run.State, run.RunCommand] = Owner(
            run.CATEGORY,
            run.decide,
            store=store,
            publisher=publisher,
            categories=CATEGORIES,
            prepare=self._prepare,
            observe=_measure,
        )

    async def start(self, ask: StartRun) -> RunChanged:
        """Start a run by hand; the same run id again answers the same run."""
        principal = ask.principal
        stream = ids.definition(principal.tenant_group, ask.definition_id)
        found = await self._store.events("definition", [stream], tenant_group=principal.tenant_group)
        current = found[stream][-1].event if stream in found else None
        if not isinstance(current, DefinitionSynced):
            raise Rejected("definition.not_found", f"there is no definition {ask.definition_id!r}", status=404)
        command = run.Create(
            run_id=ask.run_id,
            definition_id=ask.definition_id,
            principal=principal,
            evidence=run.Evidence(bundle=await self._evidence.bundle(principal.tenant_group, current.bundle)),
            bundle=current.bundle,
            context=ask.context,
            trigger=Trigger(kind="manual"),
            project_id=ask.project_id,
        )
        return await self._ask(ask, command)

    async def cancel(self, ask: CancelRun) -> RunChanged:
        return await self._ask(ask, run.Cancel(principal=ask.principal, reason=ask.reason))

    async def suspend(self, ask: SuspendRun) -> RunChanged:
        return await self._ask(ask, run.Suspend(principal=ask.principal, reason=ask.reason))

    async def resume(self, ask: ResumeRun) -> RunChanged:
        return await self._ask(ask, run.Resume(run_id=ask.run_id, principal=ask.principal, evidence=run.NO_EVIDENCE))

    async def retry(self, ask: RetryStep) -> RunChanged:
        command = run.RetryStep(run_id=ask.run_id, step=ask.step, principal=ask.principal, evidence=run.NO_EVIDENCE)
        return await self._ask(ask, command)

    async def on_facts(self, _type: str, facts: Sequence[Address]) -> Mapping[UUID, MinutebookError]:
        """Something happened to runs or to what they wait for: look at each run once."""
        return await self.plan({fact.correlation: fact.traceparent for fact in facts})

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

    async def _ask(
        self, ask: StartRun | CancelRun | SuspendRun | ResumeRun | RetryStep, command: run.RunCommand
    ) -> RunChanged:
        item = Item(
            stream_id=ask.run_id,
            command=command,
            actor=ask.principal.actor,
            causation=ask.command_id,
            tenant_group=ask.principal.tenant_group,
            tenant=ask.principal.tenant,
            traceparent=ask.traceparent,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, MinutebookError):
            raise result
        if result.skipped:
            await self.plan({ask.run_id: ask.traceparent})
        return RunChanged.model_validate(
            {"run_id": ask.run_id, "version": result.version, "state": result.state.status}
        )

    async def _prepare(
        self, batch: Sequence[tuple[Item[run.RunCommand], run.State, UUID | None]], _now: datetime
    ) -> Sequence[run.RunCommand | MinutebookError]:
        """Complete commands that plan with the evidence that their runs need, read for all of them at once."""
        commands: list[run.RunCommand | MinutebookError] = [item.command for item, _, _ in batch]
        needing: dict[int, tuple[UUID, run.State]] = {}
        for index, (item, state, group) in enumerate(batch):
            if not isinstance(item.command, run.Advance | run.Resume | run.RetryStep):
                continue
            if group is None:
                commands[index] = Rejected("run.not_found", "there is no such run", status=404)
            else:
                needing[index] = (group, state)
        evidence = await self._evidence.read(list(needing.values()))
        for index, read in zip(needing, evidence, strict=True):
            commands[index] = replace(batch[index][0].command, evidence=read)  # type: ignore[arg-type]  # filtered above
        return commands


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
    """The kind of a step that is under way, as definitions name it; None for one that never began or has ended."""
    match open_step.status:
        case "queued":
            return "parallel" if open_step.open_id is None else "agent"
        case "waiting":
            return "decision"
        case "writing":
            return "write"
        case _:
            return None

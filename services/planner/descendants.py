"""Runs that are made of other runs: what their deciders need of the other one's history."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from contracts.base import BlobRef, Event
from contracts.commands import ForkRun, RestartRun
from contracts.errors import Rejected
from contracts.events.run import RunStepWriting
from libs.domain import decision, run
from libs.domain.categories import CATEGORIES
from libs.domain.run.operating import may_operate
from libs.eventstore.port import EventStore
from libs.eventstore.snapshots import read_states
from minutebook.models.problem import ProblemItem
from services.planner.current import CurrentVersions, Versions
from services.planner.evidence import EvidenceReader

SURELY_NOT_DONE = frozenset({"failed", "cancelled"})
"""States of writes that a fork may do itself: in every other one they were done, or may be."""


class Descendants:
    """Completes the commands that restart and fork."""

    def __init__(self, store: EventStore, current: CurrentVersions, evidence: EvidenceReader) -> None:
        self._store = store
        self._current = current
        self._evidence = evidence

    async def restart(self, ask: RestartRun) -> run.Restart:
        """Read the run that is restarted, and the version that its successor takes.

        Raises:
            contracts.errors.Rejected: ``run.not_found``, ``definition.not_found`` (404).
        """
        group = ask.principal.tenant_group
        parent = run.CATEGORY.fold(tuple(await self._history(group, ask.run_id)))
        version = (await self._versions(group, parent.definition_id)).of(ask.new_run_id)
        return run.Restart(
            run_id=ask.new_run_id,
            parent_id=ask.run_id,
            parent=parent,
            principal=ask.principal,
            evidence=run.Evidence(tenant_group=group, bundle=await self._evidence.bundle(group, version.bundle)),
            bundle=version.bundle,
        )

    async def fork(self, ask: ForkRun) -> run.Fork:
        """Read the run that is forked as it was at the point, and what became of its writes up to now.

        Raises:
            contracts.errors.Rejected: ``run.not_found`` (404), ``run.not_yours`` (403),
                ``definition.version_unknown`` and ``fork.…`` (422).
        """
        group = ask.principal.tenant_group
        events = await self._history(group, ask.run_id)
        present = run.CATEGORY.fold(tuple(events))
        may_operate(ask.principal, present)
        parent, version = run.point(events, at_version=ask.at_version, from_step=ask.from_step)
        bundle = await self._bundle(group, present, ask.hash)
        finished = [record.output for record in parent.steps.values() if record.output is not None]
        return run.Fork(
            run_id=ask.new_run_id,
            parent_id=ask.run_id,
            parent=parent,
            at_version=version,
            effects=await self._effects(group, present, events),
            principal=ask.principal,
            evidence=run.Evidence(
                tenant_group=group,
                bundle=await self._evidence.bundle(group, bundle),
                children=await self._decisions(group, parent),
                artefacts=await self._evidence.artefacts(group, finished),
            ),
            bundle=bundle,
            context=ask.context,
            artifacts=ask.artifacts,
        )

    async def _history(self, group: UUID, run_id: UUID) -> Sequence[Event]:
        found = await self._store.events("run", [run_id], tenant_group=group)
        if run_id not in found:
            raise Rejected("run.not_found", "there is no such run", status=404)
        return [recorded.event for recorded in found[run_id]]

    async def _versions(self, group: UUID, definition_id: str) -> Versions:
        _, current = await self._current.read({(group, definition_id)})
        versions = current.get((group, definition_id))
        if versions is None:
            raise Rejected("definition.not_found", f"there is no definition {definition_id!r}", status=404)
        return versions

    async def _bundle(self, group: UUID, parent: run.State, wanted: str | None) -> BlobRef:
        """The version that a fork takes: its parent's, or the one that was asked for."""
        assert parent.bundle is not None
        if wanted is None or wanted == parent.hash:
            return parent.bundle
        found = (await self._versions(group, parent.definition_id)).state.bundles.get(wanted)
        if found is None:
            message = f"{parent.definition_id} was never declared with the hash {wanted}"
            raise Rejected("definition.version_unknown", message, errors=(ProblemItem(path="hash", message=message),))
        return found

    async def _decisions(self, group: UUID, parent: run.State) -> Mapping[UUID, decision.State]:
        """The decisions that its finished steps ended with: the fork has to know who decided, and who revised."""
        ended = {
            record.open_id
            for record in parent.steps.values()
            if record.status == "succeeded" and record.waits_on == "decision" and record.open_id is not None
        }
        found = await read_states(self._store, decision.CATEGORY, ended, tenant_group=group)
        return {decision_id: state for decision_id, (_, state) in found.items()}

    async def _effects(self, group: UUID, parent: run.State, events: Sequence[Event]) -> Mapping[str, UUID]:
        """The writes of a run that were done or may be, by effect key; those that it took over itself among them."""
        own = {event.effect_key: event.effect_id for event in events if isinstance(event, RunStepWriting)}
        effects = {**parent.inherited_effects, **own}
        found = await self._store.events("effect", set(effects.values()), tenant_group=group) if effects else {}
        category = CATEGORIES["effect"]
        states = {i: category.status(category.fold(tuple(r.event for r in facts))) for i, facts in found.items()}
        return {key: i for key, i in effects.items() if i in states and states[i] not in SURELY_NOT_DONE}

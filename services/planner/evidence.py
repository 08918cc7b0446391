"""Collects what planning reads from elsewhere: pinned bundles, open children and the content of artefacts."""

import json
from collections import OrderedDict, UserDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, Event, JsonValue
from contracts.errors import Broken
from libs.domain import attempt, decision, effect, wait
from libs.domain.categories import CATEGORIES
from libs.domain.run import State
from libs.domain.run.commands import Child, Evidence
from libs.domain.run.state import StepRecord
from libs.eventstore.port import EventStore, Load, Recorded
from libs.language.model import Bundle, DecisionStep
from services.planner.admissions import Admissions

BUNDLES_CACHED_MAX: Final = 200
ARTEFACTS_CACHED_BYTES_MAX: Final = 64 * 1024 * 1024
TOLD_CACHED_CHARS_MAX: Final = 16 * 1024 * 1024

_MAY_WRITE_AGAIN: Final = frozenset({"retrying", "failed", "waiting"})
"""States of steps whose next plan may arm their effect once more."""


class EvidenceReader:
    """Reads evidence for a batch of runs with one query per kind. What content addresses name is cached."""

    def __init__(self, store: EventStore, admissions: Admissions) -> None:
        self._store = store
        self._admissions = admissions
        self._bundles: OrderedDict[tuple[UUID, str], Bundle] = OrderedDict()
        self._artefacts: OrderedDict[tuple[UUID, str], bytes] = OrderedDict()
        self._artefact_bytes = 0
        self._told = _Texts()

    async def bundle(self, tenant_group: UUID, ref: BlobRef) -> Bundle:
        """Return a stored version of a definition.

        Raises:
            contracts.errors.Broken: its content is not in the store.
        """
        key = (tenant_group, ref.digest)
        if key not in self._bundles:
            content = (await self._store.blobs(tenant_group, [ref.digest])).get(ref.digest)
            if content is None:
                raise Broken("bundle.missing", f"the content of definition bundle {ref.digest} is not in the store")
            self._bundles[key] = Bundle.model_validate_json(content)
            while len(self._bundles) > BUNDLES_CACHED_MAX:
                self._bundles.popitem(last=False)
        return self._bundles[key]

    async def read(self, runs: Sequence[tuple[UUID, UUID, State]], load: Load) -> list[Evidence]:
        """Return the evidence of each (tenant group, run id, run state), in order. `load` brought the states."""
        states = [(group, state) for group, _, state in runs]
        bundles = [await self.bundle(group, state.bundle) for group, state in states if state.bundle is not None]
        assert len(bundles) == len(runs), "every run has a pinned version"
        decided = [_decided(state, bundle) for (_, state), bundle in zip(states, bundles, strict=True)]
        children = await self._children(states, load.beside, decided)
        self._keep(load.outputs)
        wanted: defaultdict[UUID, set[str]] = defaultdict(set)
        for group, state in states:
            wanted[group] |= set(_digests(state, children))
        content = {group: await self._content(group, digests) for group, digests in wanted.items()}
        verdicts = await self._verdicts(runs)
        evidence = []
        for (group, run_id, state), bundle in zip(runs, bundles, strict=True):
            evidence.append(
                Evidence(
                    tenant_group=group,
                    bundle=bundle,
                    children={i: children[i] for i in _ids(state) if i in children},
                    artefacts=_Parsed({d: content[group][d] for d in _digests(state, children) if d in content[group]}),
                    verdict=verdicts.get(run_id),
                    told=self._told,
                )
            )
        return evidence

    async def artefacts(self, tenant_group: UUID, refs: Iterable[BlobRef]) -> Mapping[str, JsonValue]:
        """Return the content of artefacts by digest; what is not in the store is left out."""
        return _Parsed(await self._content(tenant_group, {ref.digest for ref in refs}))

    async def _children(
        self,
        runs: Sequence[tuple[UUID, State]],
        known: Mapping[UUID, Sequence[Recorded]],
        decided: Sequence[Iterable[UUID]],
    ) -> dict[UUID, Child]:
        missing: defaultdict[tuple[str, UUID], set[UUID]] = defaultdict(set)
        folded: dict[UUID, Child] = {}
        for (group, state), also in zip(runs, decided, strict=True):
            for category, stream_id in (*children(state), *((decision.CATEGORY.name, i) for i in also)):
                facts = known.get(stream_id)
                if facts is None:
                    missing[category, group].add(stream_id)
                elif facts[0].metadata.tenant_group == group:
                    folded[stream_id] = CATEGORIES[category].fold(tuple(r.event for r in facts))
        for (category, group), stream_ids in missing.items():
            found = await self._store.events(category, stream_ids, tenant_group=group)
            for stream_id, recorded in found.items():
                folded[stream_id] = CATEGORIES[category].fold(tuple(r.event for r in recorded))
        return folded

    async def _verdicts(self, runs: Sequence[tuple[UUID, UUID, State]]) -> Mapping[UUID, Event]:
        """What the concurrency keys say of the runs that wait for them, by run."""
        asking = {
            run_id: state.admission.admission_id
            for _, run_id, state in runs
            if state.admission is not None and not state.started
        }
        return await self._admissions.verdicts(asking) if asking else {}

    async def _content(self, group: UUID, digests: set[str]) -> dict[str, bytes]:
        missing = [d for d in digests if (group, d) not in self._artefacts]
        if missing:
            read = await self._store.blobs(group, missing)
            self._keep({(group, digest): content for digest, content in read.items()})
        found: dict[str, bytes] = {}
        for digest in digests:
            if (content_ := self._artefacts.get((group, digest))) is not None:
                self._artefacts.move_to_end((group, digest))
                found[digest] = content_
        while self._artefact_bytes > ARTEFACTS_CACHED_BYTES_MAX and len(self._artefacts) > 1:
            _, dropped = self._artefacts.popitem(last=False)
            self._artefact_bytes -= len(dropped)
        return found

    def _keep(self, contents: Mapping[tuple[UUID, str], bytes]) -> None:
        for key, content in contents.items():
            if key not in self._artefacts:
                self._artefacts[key] = content
                self._artefact_bytes += len(content)


class _Texts(UserDict[str, str]):
    """Texts by name, as many as there is room for: the oldest go first."""

    def __init__(self) -> None:
        super().__init__()
        self._chars = 0

    def __setitem__(self, name: str, text: str) -> None:
        self._chars += len(text) - len(self.data.get(name, ""))
        self.data[name] = text
        while self._chars > TOLD_CACHED_CHARS_MAX and len(self.data) > 1:
            oldest = next(iter(self.data))
            self._chars -= len(self.data.pop(oldest))


class _Parsed(Mapping[str, JsonValue]):
    """Content by digest, parsed when it is read: a plan reads few of the artefacts that it may read."""

    def __init__(self, content: Mapping[str, bytes]) -> None:
        self._content = content

    def __getitem__(self, digest: str) -> JsonValue:
        value: JsonValue = json.loads(self._content[digest])
        return value

    def __contains__(self, digest: object) -> bool:
        return digest in self._content

    def __iter__(self) -> Iterator[str]:
        return iter(self._content)

    def __len__(self) -> int:
        return len(self._content)


def children(state: State) -> list[tuple[str, UUID]]:
    """The streams, by category, on which the next step of a run depends."""
    return [
        *(
            (category, record.open_id)
            for record in state.steps.values()
            if record.open_id is not None and (category := _category(record)) is not None
        ),
        *(
            ("effect", record.effect_id)
            for record in state.steps.values()
            if record.effect_id is not None and record.status in _MAY_WRITE_AGAIN
        ),
    ]


def _decided(state: State, bundle: Bundle) -> set[UUID]:
    """Decisions that were answered whose voters and revisers decisions that are still to come may bar."""
    steps = [step for step in bundle.of(state.variant).steps if isinstance(step, DecisionStep)]
    if not any(step.barred and state.step(step.key).status == "pending" for step in steps):
        return set()
    records = [state.step(step.key) for step in steps]
    return {r.open_id for r in records if r.status == "succeeded" and r.open_id and r.waits_on == "decision"}


def _category(record: StepRecord) -> str | None:
    """The category of the stream that a step waits for; None where it waits for none."""
    match record.status:
        case "queued":
            return "attempt"
        case "writing":
            return "effect"
        case "waiting":
            return "wait" if record.waits_on == "event" else "decision"
        case _:
            return None


def _ids(state: State) -> set[UUID]:
    ids = (each for record in state.steps.values() for each in (record.open_id, record.effect_id))
    return {each for each in ids if each is not None}


def _digests(state: State, children: Mapping[UUID, Any]) -> Iterable[str]:
    """Digests of every artefact that a plan of this run may read."""
    refs: list[BlobRef | None] = []
    for record in state.steps.values():
        refs += [record.output, record.items]
        if record.feedback is not None:
            refs += [record.feedback.previous, record.feedback.revised, record.feedback.review]
        match children.get(record.open_id) if record.open_id else None:
            case attempt.State(output=output):
                refs.append(output)
            case decision.State(artifact=artifact, revised=revised, answer=answer):
                refs += [artifact, revised, answer]
            case effect.State(response=response):
                refs.append(response)
            case wait.State(payload=payload):
                refs.append(payload)
    return [ref.digest for ref in refs if ref is not None]

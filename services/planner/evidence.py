"""Collects what planning reads from elsewhere: pinned bundles, open children and the content of artefacts."""

import json
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, JsonValue
from contracts.errors import Broken
from libs.domain import attempt, decision, effect
from libs.domain.categories import CATEGORIES
from libs.domain.run import State
from libs.domain.run.commands import Child, Evidence
from libs.eventstore.port import EventStore
from libs.language.model import Bundle

BUNDLES_CACHED_MAX: Final = 200
ARTEFACTS_CACHED_BYTES_MAX: Final = 64 * 1024 * 1024

_CHILD_OF: Final[Mapping[str, str]] = {
    "queued": "attempt",
    "retrying": "",
    "failed": "",
    "waiting": "decision",
    "writing": "effect",
}


class EvidenceReader:
    """Reads evidence for a batch of runs with one query per kind. What content addresses name is cached."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._bundles: OrderedDict[tuple[UUID, str], Bundle] = OrderedDict()
        self._artefacts: OrderedDict[tuple[UUID, str], bytes] = OrderedDict()
        self._artefact_bytes = 0

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

    async def read(self, runs: Sequence[tuple[UUID, State]]) -> list[Evidence]:
        """Return the evidence of each (tenant group, run state), in order."""
        children = await self._children(runs)
        wanted: defaultdict[UUID, set[str]] = defaultdict(set)
        for group, state in runs:
            wanted[group] |= set(_digests(state, children))
        content = {group: await self._content(group, digests) for group, digests in wanted.items()}
        evidence = []
        for group, state in runs:
            assert state.bundle is not None
            evidence.append(
                Evidence(
                    bundle=await self.bundle(group, state.bundle),
                    children={i: children[i] for i in _open_ids(state) if i in children},
                    artefacts={d: content[group][d] for d in _digests(state, children) if d in content[group]},
                )
            )
        return evidence

    async def _children(self, runs: Sequence[tuple[UUID, State]]) -> dict[UUID, Child]:
        ids: defaultdict[tuple[str, UUID], set[UUID]] = defaultdict(set)
        for group, state in runs:
            for record in state.steps.values():
                category = _CHILD_OF.get(record.status)
                if category and record.open_id is not None:
                    ids[category, group].add(record.open_id)
        children: dict[UUID, Child] = {}
        for (category, group), stream_ids in ids.items():
            found = await self._store.events(category, stream_ids, tenant_group=group)
            for stream_id, recorded in found.items():
                children[stream_id] = CATEGORIES[category].fold(tuple(r.event for r in recorded))
        return children

    async def _content(self, group: UUID, digests: set[str]) -> dict[str, JsonValue]:
        missing = [d for d in digests if (group, d) not in self._artefacts]
        if missing:
            for digest, content in (await self._store.blobs(group, missing)).items():
                self._artefacts[group, digest] = content
                self._artefact_bytes += len(content)
        values: dict[str, JsonValue] = {}
        for digest in digests:
            content_ = self._artefacts.get((group, digest))
            if content_ is not None:
                self._artefacts.move_to_end((group, digest))
                values[digest] = json.loads(content_)
        while self._artefact_bytes > ARTEFACTS_CACHED_BYTES_MAX and len(self._artefacts) > 1:
            _, dropped = self._artefacts.popitem(last=False)
            self._artefact_bytes -= len(dropped)
        return values


def _open_ids(state: State) -> list[UUID]:
    return [record.open_id for record in state.steps.values() if record.open_id is not None]


def _digests(state: State, children: Mapping[UUID, Any]) -> Iterable[str]:
    """Digests of every artefact that a plan of this run may read."""
    refs: list[BlobRef | None] = []
    for record in state.steps.values():
        refs.append(record.output)
        if record.feedback is not None:
            refs += [record.feedback.previous, record.feedback.revised, record.feedback.review]
        match children.get(record.open_id) if record.open_id else None:
            case attempt.State(output=output):
                refs.append(output)
            case decision.State(artifact=artifact, revised=revised):
                refs += [artifact, revised]
            case effect.State(response=response):
                refs.append(response)
    return [ref.digest for ref in refs if ref is not None]

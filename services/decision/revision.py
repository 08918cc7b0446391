"""Whether a revised artefact is one that the producing step could have made: its JSON Schema says so."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from jsonschema import Draft202012Validator
from referencing import Registry

from contracts.base import JsonObject, JsonValue
from contracts.errors import Broken, MinutebookError, Rejected
from libs import canonical
from libs.domain import run
from libs.domain.decision import Answer, Command, State, decide
from libs.eventstore.port import EventStore, Load
from libs.eventstore.snapshots import read_states
from libs.language.model import AgentStep, Bundle, ParallelStep
from libs.owner import Item
from minutebook.models.problem import ProblemItem

PROBLEMS_MAX: Final = 50
MESSAGE_CHARS_MAX: Final = 500

_ROOT: Final = "revised_artifact"


class Revisions:
    """Completes a batch of commands: an answer whose revision does not fit becomes the error that says where.

    Who may not answer learns nothing of the schema, so the decider is asked first and its no is left to it.
    """

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def check(
        self, batch: Sequence[tuple[Item[Command], State, UUID | None]], load: Load
    ) -> Sequence[Command | MinutebookError]:
        """Return the commands as they are, or errors in their places."""
        return [await self._checked(item, state, group, load.now) for item, state, group in batch]

    async def _checked(
        self, item: Item[Command], state: State, group: UUID | None, now: datetime
    ) -> Command | MinutebookError:
        command = item.command
        if not isinstance(command, Answer) or command.revised is None or group is None or group != item.tenant_group:
            return command
        try:
            decided = decide(command, state, now)
        except MinutebookError:
            return command
        if not decided.events:
            return command
        assert state.run_id is not None
        bundle = await self._bundle(state.run_id, group)
        value = canonical.parse(
            command.blobs[command.revised.digest], what="the revised artefact", bytes_max=command.revised.bytes
        )
        problems = tuple(_problems(value, bundle, state.artifact_step))[:PROBLEMS_MAX]
        if not problems:
            return command
        return Rejected(
            "decision.revision",
            f"the revised artefact is not what {state.artifact_step!r} hands off: "
            + "; ".join(f"{p.path}: {p.message}" for p in problems[:3]),
            errors=problems,
        )

    async def _bundle(self, run_id: UUID, tenant_group: UUID) -> Bundle:
        """The version that the run is pinned to."""
        found = await read_states(self._store, run.CATEGORY, [run_id], tenant_group=tenant_group)
        _, its = found[run_id]
        assert its.bundle is not None, "a decision's run was created before it"
        content = (await self._store.blobs(tenant_group, [its.bundle.digest])).get(its.bundle.digest)
        if content is None:
            raise Broken("run.bundle_missing", f"the definition of run {run_id} is not in the record")
        return Bundle.model_validate_json(content)


def _problems(value: JsonValue, bundle: Bundle, step_key: str | None) -> Iterator[ProblemItem]:
    """What is wrong with an artefact, each with its dotted path. A parallel step's artefact is an object by branch."""
    if not isinstance(value, dict):
        yield ProblemItem(path=_ROOT, message="an artefact is a JSON object")
        return
    step = next((step for step in bundle.definition.steps if step.key == step_key), None)
    match step:
        case AgentStep():
            yield from _against(value, _schema(bundle, step), _ROOT)
        case ParallelStep():
            branches = {branch.key: branch for branch in step.parallel}
            for key in value.keys() - branches.keys():
                yield ProblemItem(path=f"{_ROOT}.{key}", message=f"{step.key} has no such branch")
            for key, branch in branches.items():
                if key in value:
                    yield from _against(value[key], _schema(bundle, branch), f"{_ROOT}.{key}")
                else:
                    yield ProblemItem(path=f"{_ROOT}.{key}", message="the output of this branch is missing")
        case _:
            pass


def _schema(bundle: Bundle, step: AgentStep) -> JsonObject:
    return bundle.schemas[step.output] if step.output is not None else {"type": "object"}


def _against(value: JsonValue, schema: JsonObject, root: str) -> Iterator[ProblemItem]:
    # An empty registry: a `$ref` to elsewhere is never fetched.
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER, registry=Registry())
    for error in sorted(validator.iter_errors(value), key=lambda error: [str(part) for part in error.absolute_path]):
        path = ".".join([root, *(str(part) for part in error.absolute_path)])
        yield ProblemItem(path=path, message=error.message[:MESSAGE_CHARS_MAX])

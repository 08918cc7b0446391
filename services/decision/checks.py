"""What is read before a decision is judged: who its voters are, and whether what a person sent fits its schema."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from contracts.base import BlobRef, JsonObject, JsonValue
from contracts.errors import Broken, MinutebookError, Rejected
from libs import canonical
from libs.domain import run
from libs.domain.access import sees_run
from libs.domain.decision import Answer, Command, Look, Reassign, Seating, State, decide, needs_seats
from libs.eventstore.port import Load, Store
from libs.eventstore.snapshots import read_states
from libs.language.fit import misfits
from libs.language.model import AgentStep, Bundle, DecisionStep, Definition, ManualStep, ParallelStep, Step
from libs.owner import Item
from minutebook.models.problem import ProblemItem
from services.decision.people import People, Person, seats_of

_REVISED: Final = "revised_artifact"
_ANSWER: Final = "answer"


class Checks:
    """Completes a batch of commands with the holders of roles; what does not fit becomes the error that says where.

    Who may not answer learns nothing of a schema, so the decider is asked first and its no is left to it.
    """

    def __init__(self, store: Store, people: People) -> None:
        self._store = store
        self._people = people

    async def check(
        self, batch: Sequence[tuple[Item[Command], State, UUID | None]], load: Load
    ) -> Sequence[Command | MinutebookError]:
        """Return the commands, complete, or errors in their places."""
        people = await self._holders(batch)
        commands: list[Command | MinutebookError] = []
        for item, state, group in batch:
            command: Command | MinutebookError = item.command
            if group is not None and item.tenant_group in (None, group):
                command = _seated(item.command, state, people.get(group, ()))
                command = await self._checked(command, state, group, load.now)
            commands.append(command)
        return commands

    async def _holders(
        self, batch: Sequence[tuple[Item[Command], State, UUID | None]]
    ) -> Mapping[UUID, tuple[Person, ...]]:
        """Who may hold the roles of the decisions of a batch whose voters are to be named now, by tenant group."""
        asked: defaultdict[UUID, list[State]] = defaultdict(list)
        for item, state, group in batch:
            if group is not None and item.tenant_group in (None, group) and _names_voters(item.command, state):
                asked[group].append(state)
        return {group: await self._people.holding(group, states) for group, states in asked.items()}

    async def _checked(self, command: Command, state: State, group: UUID, now: datetime) -> Command | MinutebookError:
        sent = isinstance(command, Answer) and (command.revised is not None or command.answer is not None)
        if not sent and not isinstance(command, Reassign):
            return command
        try:
            if not decide(command, state, now).events:
                return command
        except MinutebookError:
            return command
        error = None
        if isinstance(command, Reassign):
            error = await self._unfit_person(command, state, group)
        elif isinstance(command, Answer):
            error = await self._unfit_content(command, state, group)
        return error or command

    async def _unfit_person(self, command: Reassign, state: State, group: UUID) -> MinutebookError | None:
        """Why somebody cannot be put in another's place."""
        user = command.to_user
        person = (await self._people.named(group, [user.id])).get(user.id)
        if person is None or not person.active:
            message = f"{user.email} is no active user of this tenant group"
        elif state.initiated_by is None or not sees_run(person, state.initiated_by.id, state.project_id):
            message = f"{user.email} does not see the run; make them a member of its project first"
        else:
            return None
        return Rejected("decision.not_reassigned", message, errors=(ProblemItem(path="to", message=message),))

    async def _unfit_content(self, command: Answer, state: State, group: UUID) -> MinutebookError | None:
        """What is wrong with an answer or with a revised artefact, by dotted path."""
        if command.answer is not None:
            form = await self._content(group, state.form)
            assert isinstance(form, dict), "a question has a form"
            wrong = misfits(_sent(command, command.answer), form, root=_ANSWER)
            return _unfit("decision.answer", f"the answer does not fit the form of {state.step!r}", wrong)
        if command.revised is not None:
            assert state.run_id is not None, "a decision belongs to a run"
            bundle, definition = await self._version(state.run_id, group)
            problems = _problems(_sent(command, command.revised), definition, bundle, state.artifact_step)
            message = f"the revised artefact is not what {state.artifact_step!r} hands off"
            return _unfit("decision.revision", message, problems)
        return None

    async def _version(self, run_id: UUID, tenant_group: UUID) -> tuple[Bundle, Definition]:
        """The version that the run is pinned to, and the definition as the run's variant has it."""
        found = await read_states(self._store, run.CATEGORY, [run_id], tenant_group=tenant_group)
        _, its = found[run_id]
        bundle = Bundle.model_validate(await self._content(tenant_group, its.bundle))
        return bundle, bundle.of(its.variant)

    async def _content(self, tenant_group: UUID, ref: BlobRef | None) -> Any:
        assert ref is not None, "what is looked up was recorded"
        content = (await self._store.blobs(tenant_group, [ref.digest])).get(ref.digest)
        if content is None:
            raise Broken("decision.content_missing", f"the content {ref.digest} is not in the record")
        return canonical.parse(content, what="content", bytes_max=len(content))


def _sent(command: Answer, ref: BlobRef) -> JsonValue:
    return canonical.parse(command.blobs[ref.digest], what="what was sent", bytes_max=ref.bytes)


def _unfit(code: str, message: str, problems: Sequence[ProblemItem]) -> MinutebookError | None:
    if not problems:
        return None
    told = "; ".join(f"{problem.path}: {problem.message}" for problem in problems[:3])
    return Rejected(code, f"{message}: {told}", errors=tuple(problems))


def _seated(command: Command, state: State, people: Sequence[Person]) -> Command:
    if not _names_voters(command, state):
        return command
    return command.model_copy(update={"seats": seats_of(state, people)})


def _names_voters(command: Command, state: State) -> bool:
    return isinstance(command, Answer | Look | Reassign | Seating) and needs_seats(state)


def _problems(value: JsonValue, definition: Definition, bundle: Bundle, artifact_step: str | None) -> list[ProblemItem]:
    """What is wrong with an artefact, each with its dotted path.

    Of a parallel step it is an object by branch, of a step that was done per item a list of what one hands off.
    """
    top, _, below = (artifact_step or "").partition(".")
    step = next((step for step in definition.steps if step.key == top), None)
    if not isinstance(step, ParallelStep):
        schema = _schema(bundle, step)
        if isinstance(step, AgentStep) and step.for_each is not None and not below:
            schema = {"type": "array", "items": schema or {"type": "object"}}
        return list(misfits(value, schema, root=_REVISED))
    branches = {branch.key: _schema(bundle, branch) for branch in step.parallel}
    if below:
        return list(misfits(value, branches.get(below), root=_REVISED))
    return list(_joined(value, step, branches))


def _joined(value: JsonValue, step: ParallelStep, branches: Mapping[str, JsonObject | None]) -> Iterator[ProblemItem]:
    """What is wrong with the joined outputs of branches: of all of them, or of the first that succeeded."""
    if not isinstance(value, dict):
        yield ProblemItem(path=_REVISED, message="an artefact of a parallel step is an object by branch")
        return
    for key in value.keys() - branches.keys():
        yield ProblemItem(path=f"{_REVISED}.{key}", message=f"{step.key} has no such branch")
    for key, schema in branches.items():
        if key in value:
            yield from misfits(value[key], schema, root=f"{_REVISED}.{key}")
        elif step.join == "all":
            yield ProblemItem(path=f"{_REVISED}.{key}", message="the output of this branch is missing")


def _schema(bundle: Bundle, step: Step | None) -> JsonObject | None:
    """What a step hands off; None for any object."""
    match step:
        case AgentStep() | ManualStep():
            return bundle.schemas[step.output] if step.output is not None else None
        case DecisionStep() if step.is_question:
            return bundle.form_of(step)
        case _:
            return None

"""Asking a target whether a write in doubt is there. A look reads, may be repeated, and settles what it can."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID

from contracts.base import Actor, JsonObject, JsonValue
from contracts.errors import MinutebookError, Rejected, Unavailable
from contracts.events.definition import ProbeDeclaration, ToolDeclaration
from libs.domain.effect import CALL_TIMEOUT_MAX, Command, Look, State, is_over, over_no_earlier
from libs.eventstore.port import Load, Store
from libs.faultpoints import faultpoint
from libs.language.interpolation import fill
from libs.language.paths import MISSING, Missing, resolve
from libs.mcp import Address, Answered, NotSent, Outcome, call_tool
from libs.owner import Done, Item, Owner
from libs.process import actor
from libs.telemetry.logs import get_logger
from libs.telemetry.tracing import span
from services.effects.connectors import Call, Connectors
from services.effects.gates import Gates, Limits, Server
from services.effects.ledger import CallTool, RunUrl, fold
from services.effects.links import back_link, scope_of
from services.effects.outcomes import MESSAGE_CHARS_MAX, kept, reference
from services.effects.refusal import Refusal
from services.effects.restores import lost_calls_over_at
from services.effects.scrubbing import scrubbed

LOOKS_MAX: Final = 16
"""Looks that one process has under way."""

LOOKS_PER_SERVER_MAX: Final = 2

LOOK_LATER: Final = timedelta(seconds=5)
"""When an effect is looked at again for which there was no room."""

Result = Literal["found", "absent", "ambiguous", "unreachable"]

_ACTOR = actor("effects")
_log = get_logger("effects.probes")


@dataclass(frozen=True, slots=True)
class Question:
    """A look that can be made: of an effect in doubt, by a tool of its server. Holds a secret: never logged."""

    effect_id: UUID
    server: Server
    effect: State
    probe: ProbeDeclaration
    tool: ToolDeclaration
    address: Address | None = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    limits: Limits
    timeout: timedelta
    arguments: JsonObject
    given: JsonObject
    match: JsonObject
    refusal: str | None = None


class Probes:
    """Makes looks beside the calls of the ledger, a few at a time, and one at a time of each effect.

    `busy` says how many calls to a server the ledger has under way.
    """

    def __init__(
        self,
        *,
        owner: Owner[State, Command],
        store: Store,
        connectors: Connectors,
        gates: Gates,
        busy: Callable[[Server], int],
        run_url: RunUrl,
        call: CallTool = call_tool,
    ) -> None:
        self._owner = owner
        self._store = store
        self._connectors = connectors
        self._gates = gates
        self._busy = busy
        self._run_url = run_url
        self._call_tool = call
        self._looks: dict[UUID, asyncio.Task[tuple[State, str]]] = {}

    async def due(self, load: Load, effect_ids: list[UUID]) -> dict[UUID, MinutebookError]:
        """Look for effects in doubt whose time has come; those that nobody can look for wait for an operator."""
        failures: dict[UUID, MinutebookError] = {}
        moves: list[tuple[UUID, int, datetime | None]] = []
        for effect_id in effect_ids:
            stream = load.streams[effect_id]
            assert stream.tenant_group is not None
            try:
                effect = fold(stream)
                effect = over_no_earlier(effect, await lost_calls_over_at(self._store, effect, load.now))
                if not is_over(effect, load.now):
                    # Woken early, as by a lost bus: what is not there yet may still be written.
                    moves.append((effect_id, stream.version, effect.over_at))
                    continue
                question = await self.question(stream.tenant_group, effect_id, effect)
            except Unavailable as error:
                failures[effect_id] = error
                continue
            wake_at = None
            if question is not None:
                begun = effect_id in self._looks or self._has_room(question)
                # The look itself moves the wake again. Should this process die of it, another one looks.
                wake_at = load.now + (question.timeout + LOOK_LATER if begun else LOOK_LATER)
                if begun:
                    self._begin(question, _ACTOR)
            moves.append((effect_id, stream.version, wake_at))
        if moves:
            await self._store.move_wakes("effect", moves)
        return failures

    async def look(self, question: Question, by: Actor, *, command_id: UUID) -> tuple[State, str]:
        """Look now, or join the look that is under way; the effect as it is then, and what the target said.

        Raises:
            contracts.errors.MinutebookError: what was found could not be recorded.
        """
        return await asyncio.shield(self._begin(question, by, command_id))

    async def question(self, tenant_group: UUID, effect_id: UUID, effect: State) -> Question | None:
        """What the target of an effect is to be asked; None where its connector declares no probe.

        Raises:
            contracts.errors.Unavailable: the record does not answer.
        """
        server = await self._connectors.server(tenant_group, effect.system)
        tool = next((tool for tool in server.tools if tool.name == effect.tool), None) if server else None
        if server is None or tool is None or tool.probe is None:
            return None
        probe = tool.probe
        asked = next((each for each in server.tools if each.name == probe.tool), tool)
        question = Question(
            effect_id=effect_id,
            server=(tenant_group, effect.system),
            effect=effect,
            probe=probe,
            tool=tool,
            address=None,
            secrets=(),
            limits=Limits.of(server),
            timeout=min(timedelta(seconds=asked.timeout_seconds), CALL_TIMEOUT_MAX),
            arguments={},
            given={},
            match={},
        )
        resolved = await self._connectors.resolve(tenant_group, effect)
        if isinstance(resolved, Refusal):
            return replace(question, refusal=resolved.message)
        return _filled(question, resolved)

    async def drain(self) -> None:
        """Give up the looks that are under way: nothing was written by them, and another process looks again."""
        for task in self._looks.values():
            task.cancel()
        await asyncio.gather(*self._looks.values(), return_exceptions=True)

    def _has_room(self, question: Question) -> bool:
        gate = self._gates.of(question.server, question.limits)
        free = len(self._looks) < LOOKS_MAX and gate.asking < LOOKS_PER_SERVER_MAX
        return free and gate.admits(self._busy(question.server), at_most=LOOKS_MAX)

    def _begin(self, question: Question, by: Actor, command_id: UUID | None = None) -> asyncio.Task[tuple[State, str]]:
        task = self._looks.get(question.effect_id)
        if task is None:
            task = asyncio.create_task(self._carry_out(question, by, command_id), name=f"look {question.effect_id}")
            self._looks[question.effect_id] = task
            task.add_done_callback(lambda done: self._ended(question.effect_id, done))
        return task

    def _ended(self, effect_id: UUID, task: asyncio.Task[tuple[State, str]]) -> None:
        self._looks.pop(effect_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.warning("look not recorded", effect_id=str(effect_id), error=type(error).__name__)

    async def _carry_out(self, question: Question, by: Actor, command_id: UUID | None) -> tuple[State, str]:
        look = (await self._ask(question, by)).model_copy(update={"command_id": command_id})
        faultpoint("effect.probed")
        item: Item[Command] = Item(
            stream_id=question.effect_id,
            command=look,
            actor=by,
            causation=command_id or question.effect_id,
            release=True,
        )
        (result,) = await self._owner.handle([item])
        if isinstance(result, Done):
            return result.state, look.message
        raise result

    async def _ask(self, question: Question, by: Actor) -> Look:
        """Make the call and judge its answer."""
        if question.address is None:
            return _look(question, by, "unreachable", question.refusal or "it cannot be asked")
        gate = self._gates.of(question.server, question.limits)
        gate.enter()
        gate.asking += 1
        try:
            with span("effect.probe", attributes={"effect.tool": question.probe.tool}):
                outcome = await self._call_tool(
                    question.address,
                    tool=question.probe.tool,
                    arguments=question.arguments,
                    meta={"minutebook/run": str(question.effect.run_id)},
                    timeout=question.timeout,
                )
        finally:
            gate.asking -= 1
        gate.note(sent=not isinstance(outcome, NotSent))
        return self._judged(question, by, scrubbed(outcome, question.secrets))

    def _judged(self, question: Question, by: Actor, outcome: Outcome) -> Look:
        if not isinstance(outcome, Answered):
            said = getattr(outcome, "message", None) or getattr(outcome, "reason", "")
            return _look(question, by, "unreachable", f"{question.probe.tool} did not answer: {said}")
        items = _items(question.probe, outcome.content)
        if items is None:
            where = question.probe.items or "its answer"
            return _look(question, by, "unreachable", f"{question.probe.tool} answered no list at {where}")
        found = [item for item in items if isinstance(item, dict) and _fits(item, question.match)]
        if len(found) != 1:
            among = f"{len(found)} of {len(items)} that {question.probe.tool} shows match"
            return _look(question, by, "ambiguous" if found else "absent", among)
        return self._found(question, by, found[0])

    def _found(self, question: Question, by: Actor, item: JsonObject) -> Look:
        named = reference(question.probe.reference or question.tool.reference, item)
        response, blobs = kept(item)
        run_id = question.effect.run_id
        assert run_id is not None, "an effect that exists is of a run"
        link, linked = back_link(
            question.effect_id,
            question.effect,
            tool=question.tool,
            arguments=question.given,
            reference=named,
            response=item,
            run_url=self._run_url(run_id),
        )
        return _look(question, by, "found", f"{question.probe.tool} shows it").model_copy(
            update={"reference": named, "response": response, "back_link": link, "blobs": {**blobs, **linked}}
        )


def _filled(question: Question, call: Call) -> Question:
    """A question with its templates filled in; one that needs what the write does not have cannot be asked."""
    scope = scope_of(question.effect, call.given)
    try:
        arguments, match = fill(question.probe.args, scope), fill(question.probe.match, scope)
    except Rejected as error:
        return replace(question, refusal=f"the probe cannot be filled in: {error.message}")
    assert isinstance(arguments, dict)
    assert isinstance(match, dict)
    return replace(
        question, address=call.address, secrets=call.secrets, given=call.given, arguments=arguments, match=match
    )


def _look(question: Question, by: Actor, result: Result, message: str) -> Look:
    return Look(
        effect_id=question.effect_id,
        by=by,
        claim=question.effect.claim,
        look=question.effect.looks + 1,
        result=result,
        message=message[:MESSAGE_CHARS_MAX],
        absent_is_not_landed=question.probe.absent == "not_landed",
    )


def _items(probe: ProbeDeclaration, content: JsonValue) -> list[JsonValue] | None:
    """What the target shows: the list at `items`; without a path the answer itself, a list or one thing.

    An answer that is a list arrives as `{"result": [...]}` where the server says which form its answers have.
    """
    if probe.items is not None:
        found = resolve(probe.items, content) if isinstance(content, dict) else MISSING
        return found if isinstance(found, list) else None
    if isinstance(content, dict):
        wrapped = content.get("result")
        return wrapped if content.keys() == {"result"} and isinstance(wrapped, list) else [content]
    return content if isinstance(content, list) else None


def _fits(item: JsonObject, match: JsonObject) -> bool:
    """Whether an item has every value that is asked for. Numbers and texts that look alike are alike: ids are both."""
    return all(_same(wanted, resolve(path, item)) for path, wanted in match.items())


def _same(wanted: JsonValue, found: JsonValue | Missing) -> bool:
    if isinstance(wanted, bool) or isinstance(found, bool):
        return wanted is found
    if isinstance(wanted, str | int) and isinstance(found, str | int):
        return str(wanted) == str(found)
    return wanted == found

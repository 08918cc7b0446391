"""Who works with the product: people who start, decide and operate, and a source that sends events."""

import asyncio
import hashlib
from collections.abc import Callable, Collection
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from contracts import ids
from contracts.base import JsonObject, Principal
from contracts.commands import (
    AnswerDecision,
    CancelRun,
    Command,
    CompleteStep,
    ForkRun,
    ProbeEffect,
    RestartRun,
    ResumeRun,
    RetryStep,
    StartRun,
    SuspendRun,
)
from contracts.envelope import InboundNotice
from contracts.errors import MinutebookError, Unavailable
from contracts.replies import DecisionAccepted, RunChanged
from contracts.subjects import inbound
from libs.bus.port import Message
from libs.canonical import blob
from libs.eventstore.port import Delivery
from libs.ids import mint
from libs.process import Tools
from libs.process.asks import ask
from minutebook.models.states import DecisionOutcome
from tests.simulation import catalogue
from tests.simulation.process import Crash
from tests.simulation.tables import RUN_ACTIVE
from tests.simulation.world import World

GROUP: Final = ids.tenant_group("simulation")
TENANT: Final = ids.tenant(GROUP, "simulation")
ASK_TIMEOUT: Final = timedelta(seconds=6)
TRIES: Final = 4


def person(name: str, *roles: str) -> Principal:
    email = f"{name}@example.com"
    return Principal(
        kind="user",
        id=ids.user(GROUP, email),
        name=email,
        tenant_group=GROUP,
        tenant=TENANT,
        roles=frozenset(roles),
        projects=frozenset({"core"}),
    )


DEVELOPER: Final = person("dev", "developer")
LEADS: Final = (
    person("lena", "lead", "project_manager", "developer", "platform_admin"),
    person("ravi", "lead", "project_manager", "developer", "platform_admin"),
)
OUTCOMES: Final[tuple[DecisionOutcome, ...]] = ("approve",) * 10 + ("request_changes",) * 2 + ("reject", "cancel")


class NoAnswer(Exception):
    """The door died, is not there, or says that it does not know."""


class People:
    """Everybody outside. In the calm after the faults they do whatever is asked of them, unless they are `away`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.calm = False
        self.away = False
        self._asked: set[UUID] = set()
        self._replied: set[UUID] = set()
        self._filed: dict[str, tuple[JsonObject, str]] = {}
        self._resumed: set[UUID] = set()

    # The door

    async def _through(self, use: Any) -> Any:
        """Do something through the door as it is now."""
        door = self.world.door
        tools = next((replica.tools for replica in self.world.replicas if replica.process is door), None)
        if door is None or tools is None:
            raise NoAnswer
        task = door.spawn(use(tools))
        await asyncio.wait({task})
        if task.cancelled() or isinstance(task.exception(), Crash):
            raise NoAnswer
        if isinstance(error := task.exception(), Unavailable):
            raise NoAnswer from error
        return task.result()

    async def send(self, command: Command, reply: type[Any], *, while_: Callable[[], bool] = lambda: True) -> Any:
        """Ask until there is an answer, a few times, each time with the same ids. None: nobody knows.

        `while_` tells before each time whether it is still worth asking.
        """
        for _ in range(TRIES):
            if not while_():
                return None
            sent = command.model_copy(update={"deadline": self.world.now() + ASK_TIMEOUT})
            try:
                return await self._through(lambda tools, sent=sent: ask(tools.bus, sent, reply, timeout=ASK_TIMEOUT))
            except NoAnswer:
                await asyncio.sleep(self.world.random.uniform(0.1, 4.0))
            except MinutebookError as error:
                self.world.note("people", f"are refused {error.code}: {type(command).__name__}")
                if not isinstance(command, ProbeEffect):
                    # A look may be repeated: what the first one recorded makes the answer to the second no lie.
                    self.world.auditor.refused(command.command_id, error.code)
                return error
        return None

    # Starting

    async def start_run(self, definition_id: str, key: str) -> None:
        command = StartRun(
            command_id=mint(),
            deadline=self.world.now(),
            principal=DEVELOPER,
            run_id=mint(),
            definition_id=definition_id,
            context=dict(catalogue.context(definition_id, key)),
        )
        answer = await self.send(command, RunChanged)
        if isinstance(answer, MinutebookError):
            raise AssertionError(f"a start was refused: {answer}")
        if answer is not None:
            self.world.auditor.told(answer.run_id, answer.version, answer.state)

    async def start_by_event(self, definition_id: str, external_id: str) -> None:
        keys: JsonObject = {"flow": definition_id, **catalogue.context(definition_id, external_id)}
        self._filed[external_id] = keys, definition_id
        await self.send_event("filed", external_id, keys, starts=definition_id)

    async def send_event(self, event: str, external_id: str, keys: JsonObject, *, starts: str | None = None) -> bool:
        """Deliver an event until it is taken, and now and then once more. Whether it was, before patience ended."""
        taken = False
        again = self.world.hits(0.4)
        delay = self.world.random.random() * 3
        for _ in range(10):
            try:
                await self._through(lambda tools: _deliver(tools, event, external_id, keys, self.world))
            except NoAnswer:
                await asyncio.sleep(self.world.random.uniform(0.1, 6.0))
                continue
            self.world.auditor.accepted(external_id, starts)
            taken = True
            if not again:
                return True
            again = False
            await asyncio.sleep(delay)
        return taken

    async def replying(self) -> None:
        """Send what runs wait for: once per wait, now and then before anybody waits for it."""
        while True:
            await asyncio.sleep(self.world.random.uniform(0.2, 1.5 if self.calm else 8.0))
            waits = self.world.store.rows["wait"]
            for wait_id, head in list(waits.items()):
                if (
                    head.state in {"opening", "open"}
                    and wait_id not in self._replied
                    and (self.calm or self.world.hits(0.3))
                ):
                    self._replied.add(wait_id)
                    self.world.apart(self._reply(head.columns["run_id"], f"R-{wait_id}", wait_id), "a source")
            runs = [i for i, run in self.world.auditor.streams.items() if run.definition_id == catalogue.REPLIED_TO]
            if not self.calm and runs and self.world.hits(0.2):
                self.world.apart(self._reply(self.world.random.choice(runs), f"R-{mint()}"), "a source")

    async def _reply(self, run_id: UUID, external_id: str, wait_id: UUID | None = None) -> None:
        run = self.world.auditor.streams.get(run_id)
        if run is None:  # a restore was quicker
            return
        keys: JsonObject = {"key": run.key}
        if not await self.send_event("replied", external_id, keys) and wait_id is not None:
            self._replied.discard(wait_id)

    def hear_of_a_restore(self, again: Collection[str]) -> None:
        """Deliver these events again, and what runs wait for, unless the record has it."""
        self._replied.clear()
        for external_id in again:
            if external_id in self._filed:
                keys, definition_id = self._filed[external_id]
                self.world.apart(self.send_event("filed", external_id, keys, starts=definition_id), "a source")

    # Deciding

    async def deciding(self) -> None:
        """Answer what is open, some of it by two people at once."""
        while True:
            await asyncio.sleep(self.world.random.uniform(0.2, 1.5 if self.calm else 4.0))
            if self.away:
                continue
            for decision_id, head in list(self.world.store.rows["decision"].items()):
                run = self.world.store.rows["run"].get(head.columns["run_id"])
                if head.state != "open" or run is None or run.state == "suspended" or decision_id in self._asked:
                    continue
                if not self.calm and self.world.hits(0.6):
                    continue
                self._asked.add(decision_id)
                opened = self.world.auditor.streams[decision_id].asked
                leads = LEADS if opened.quorum or (not self.calm and self.world.hits(0.3)) else LEADS[:1]
                for lead in leads:
                    outcome = "approve" if self.calm else self.world.random.choice(OUTCOMES)
                    if "answer" in opened.outcomes:
                        outcome = "answer"
                    self.world.apart(self._decide(decision_id, lead, outcome), "a decision")
            await self._complete()

    async def _complete(self) -> None:
        """Do what is to be done by hand."""
        for run_id, run in list(self.world.auditor.streams.items()):
            for step in sorted(run.manual):
                if run.state in RUN_ACTIVE and (self.calm or self.world.hits(0.4)):
                    command = CompleteStep(
                        command_id=mint(),
                        deadline=self.world.now(),
                        principal=LEADS[0],
                        run_id=run_id,
                        step=step,
                        artifact={"days": 3},
                    )
                    await self._change(command)

    async def _decide(self, decision_id: UUID, lead: Principal, outcome: DecisionOutcome) -> None:
        command = AnswerDecision(
            command_id=mint(),
            deadline=self.world.now(),
            principal=lead,
            decision_id=decision_id,
            outcome=outcome,
            answer={"answer": lead.name} if outcome == "answer" else None,
        )
        answer = await self.send(command, DecisionAccepted)
        if isinstance(answer, DecisionAccepted):
            self.world.auditor.answered(decision_id, command.command_id, outcome)
        # Nobody knows, or the run was suspended, or another outcome is offered: somebody may try again.
        self._asked.discard(decision_id)

    # Operating

    async def operating(self) -> None:
        """Cancel, suspend, resume and retry; in the calm let everything that stands still go on once."""
        while True:
            await asyncio.sleep(self.world.random.uniform(0.5, 12.0))
            runs = sorted(self.world.store.rows["run"].items())
            if self.away:
                continue
            if self.calm:
                for run_id, head in runs:
                    stands = head.state in {"suspended", "failed"} and not self.world.auditor.streams[run_id].doubted
                    if stands and run_id not in self._resumed:
                        self._resumed.add(run_id)
                        await self._let_go_on(run_id)
            elif runs:
                await self._operate(self.world.random.choice(runs)[0])

    async def _operate(self, run_id: UUID) -> None:
        common = {"deadline": self.world.now(), "principal": LEADS[1], "run_id": run_id}
        match self.world.random.randrange(10):
            case 0:
                await self._change(CancelRun(command_id=mint(), **common))
            case 8:
                await self._change(RestartRun(command_id=mint(), new_run_id=mint(), **common))
            case 9:
                await self._change(ForkRun(command_id=mint(), new_run_id=mint(), **common))
            case 1 | 2 | 3:
                await self._change(SuspendRun(command_id=mint(), **common))
                if self.world.hits(0.7):
                    await asyncio.sleep(self.world.random.uniform(0.0, 8.0))
                    await self._let_go_on(run_id)
            case _:
                await self._let_go_on(run_id)

    async def _let_go_on(self, run_id: UUID) -> None:
        common = {"deadline": self.world.now(), "principal": LEADS[1], "run_id": run_id}
        run = self.world.auditor.streams.get(run_id)
        for failed in [step for step, state in run.steps.items() if state == "failed"] if run else ():
            if await self._change(RetryStep(command_id=mint(), step=failed, **common)):
                return
        # Nothing has failed, or a branch of `any` without harm.
        await self._change(ResumeRun(command_id=mint(), **common))

    async def _change(self, command: Command) -> bool:
        answer = await self.send(command, RunChanged)
        if isinstance(answer, RunChanged):
            self.world.auditor.told(answer.run_id, answer.version, answer.state)
        return isinstance(answer, RunChanged)


async def _deliver(tools: Tools, event: str, external_id: str, keys: JsonObject, world: World) -> None:
    """What the front door of webhooks does once it believes a delivery."""
    payload, content = blob({"event": event, "external_id": external_id, "keys": keys})
    delivery = Delivery(
        id=ids.inbound(catalogue.TRIGGERED_BY, external_id),
        tenant_group=GROUP,
        tenant=TENANT,
        source=catalogue.TRIGGERED_BY,
        adapter="generic",
        external_id=external_id,
        event=event,
        keys=keys,
        payload=payload,
        body_sha256=hashlib.sha256(content).hexdigest(),
        traceparent=None,
    )
    if not await tools.store.accept(delivery, {payload.digest: content}):
        return
    notice = InboundNotice(delivery_ids=(delivery.id,)).model_dump_json().encode()
    try:
        await tools.bus.publish([Message(inbound(delivery.source), notice, id=f"inbound.{delivery.id}")])
    except Unavailable:
        world.note("api", "stored a delivery and could not ring")

"""The demo: a story comes in by webhook, agents and people take it to a pull request, and the record is shown."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import asyncpg
import httpx
from pydantic import BaseModel, Field

from contracts import ids
from contracts.errors import Broken
from libs.adapters import normalise
from libs.domain.categories import CATEGORIES
from libs.eventstore.port import Verification
from libs.eventstore.verify import verify
from libs.process.tools import mapper_on
from minutebook.client import ApiError
from minutebook.models import DeliveryAccepted, HistoryEntry, RunView, WaitingForDecision
from minutebook.models.states import DecisionOutcome
from services.dev.people import GROUP
from services.dev.stack import Stack

DEFINITION: Final = "core-dev"
LOOK_SECONDS: Final = 0.1
DEMO_SECONDS_MAX: Final = 120.0
DONE: Final = frozenset({"completed", "failed", "cancelled", "suspended"})


class ScriptedAnswer(BaseModel):
    """What a person of the demo answers. `revise` sets values of the artefact by dotted path."""

    step: str
    round: int
    user: str
    outcome: DecisionOutcome
    comment: str | None = None
    revise: dict[str, Any] = Field(default_factory=dict)


@dataclass(slots=True)
class Result:
    """Everything that the end of the demo tells."""

    run: RunView
    history: list[HistoryEntry]
    verification: Verification
    seconds: float
    calls: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the run came to its good end, wrote once, and the record agrees with itself."""
        return self.run.outcome == "succeeded" and self.verification.ok and len(self.calls) == 1

    def as_json(self) -> dict[str, Any]:
        """The one object of `--json`."""
        run = self.run
        return {
            "run_id": str(run.run_id),
            "state": run.state,
            "outcome": run.outcome,
            "definition": run.definition_id,
            "hash": run.definition_hash,
            "steps": [
                {
                    "key": step.key,
                    "kind": step.kind,
                    "state": step.state,
                    "attempts": len(step.attempts) if step.kind == "agent" else step.round,
                    "cost_microdollars": step.cost_microdollars,
                }
                for step in run.steps
            ],
            "decisions": [
                {"key": entry.data["step"], "outcome": entry.data["outcome"], "by": entry.actor.name}
                for entry in answers(self.history)
            ],
            "effects": [
                {
                    "key": effect.key,
                    "system": effect.system,
                    "tool": effect.tool,
                    "state": effect.state,
                    "reference": effect.reference,
                }
                for effect in run.effects
            ],
            "cost_microdollars": run.cost_microdollars,
            "history_events": len(self.history),
            "verified": self.verification.ok,
        }


def _is_write_of(run_id: UUID, meta: Mapping[str, Any]) -> bool:
    return (meta.get("minutebook/run"), meta.get("minutebook/kind")) == (str(run_id), "write")


def answers(history: list[HistoryEntry]) -> list[HistoryEntry]:
    """The answers of people, each with the step that its decision stood at."""
    steps = {e.stream_id: e.data["step"] for e in history if e.type == "decision.opened"}
    return [
        entry.model_copy(update={"data": {**entry.data, "step": steps[entry.stream_id]}})
        for entry in history
        if entry.type == "decision.answered"
    ]


async def play(stack: Stack, definitions: Path, show: Callable[[RunView, float], None]) -> Result:
    """Send the story in, answer as the script says, and return when the run has ended."""
    scripts = definitions / "workflows" / DEFINITION / "demo"
    answers_left = [ScriptedAnswer.model_validate(a) for a in json.loads((scripts / "decisions.json").read_text())]
    began = time.monotonic()
    story = json.loads((scripts / "story.json").read_text()) | {"timestamp": time.time_ns() // 1_000_000}
    await deliver(stack, json.dumps(story).encode())
    run_id = ids.triggered_run(ids.tenant_group(GROUP), DEFINITION, f"jira:{normalise('jira', story, {}).external_id}")
    async with asyncio.timeout(DEMO_SECONDS_MAX), stack.client() as client:
        while True:
            try:
                run = await client.run(run_id)
            except ApiError as error:
                if error.problem.status != 404:
                    raise
                await asyncio.sleep(LOOK_SECONDS)
                continue
            show(run, time.monotonic() - began)
            if run.state in DONE:
                break
            await _answer(stack, run, answers_left)
            await asyncio.sleep(LOOK_SECONDS)
        history = [entry async for entry in client.history(run_id)]
    seconds = time.monotonic() - began
    calls = [json.loads(line) for line in _lines(stack.sandbox_calls)]
    own = [call for call in calls if _is_write_of(run_id, call["meta"])]
    return Result(run, history, await _verified(stack), seconds, own)


async def deliver(stack: Stack, body: bytes) -> DeliveryAccepted:
    """Post a webhook as Jira would: signed over its raw bytes."""
    signature = hmac.new(stack.webhook_secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {"content-type": "application/json", "x-hub-signature-256": f"sha256={signature}"}
    async with httpx.AsyncClient(base_url=stack.api_url) as http:
        response = await http.post("/api/public/workflows/events/jira", content=body, headers=headers)
    if response.status_code not in (200, 202):
        raise Broken("demo.webhook_refused", f"the webhook was answered {response.status_code}: {response.text[:500]}")
    return DeliveryAccepted.model_validate_json(response.content)


async def _answer(stack: Stack, run: RunView, left: list[ScriptedAnswer]) -> None:
    """Answer what waits and is scripted next, as the person whom the script names."""
    for waiting in run.waiting_for:
        if not isinstance(waiting, WaitingForDecision):
            continue
        answer = next((a for a in left if a.step == waiting.step), None)
        if answer is None:
            raise Broken("demo.no_answer", f"demo/decisions.json has no answer left for {waiting.step}")
        left.remove(answer)
        async with stack.client(answer.user) as client:
            revised = None
            if answer.revise:
                decision = await client.decision(waiting.decision_id)
                revised = _revised(decision.artifact, answer.revise)
            await client.decide(waiting.decision_id, answer.outcome, comment=answer.comment, revised_artifact=revised)


def _revised(artifact: Any, changes: Mapping[str, Any]) -> Any:
    copy = json.loads(json.dumps(artifact))
    for path, value in changes.items():
        *parents, last = path.split(".")
        target = copy
        for parent in parents:
            target = target[parent]
        target[last] = value
    return copy


async def _verified(stack: Stack) -> Verification:
    pool = await asyncpg.create_pool(stack.owner_dsn, min_size=1, max_size=1)
    try:
        return await verify(pool, CATEGORIES, mapper=mapper_on(pool, stack.secrets))
    finally:
        await pool.close()


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []

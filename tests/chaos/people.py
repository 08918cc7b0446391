"""The outside: a tracker that sends stories, and the people who answer, over HTTP, each as long as it takes.

Whoever sends something and hears nothing, or a 503, sends the very same again. What was answered is remembered: the
record must hold it.
"""

import asyncio
import json
import random
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import httpx

from contracts import ids
from services.dev.people import GROUP
from tests.chaos.fleet import Fleet
from tests.support.stack import PREFIX, signature, story

AGAIN_SECONDS: Final = 0.3
PERSISTENCE_SECONDS: Final = 180.0
LOOK_SECONDS: Final = 1.0
ROLES: Final[Mapping[str, str]] = {
    "po_review": "priya@example.com",
    "design_review": "lena@example.com",
    "release_approval": "lena@example.com",
}


class Refused(Exception):
    """An answer that nothing which was killed explains."""


@dataclass
class People:
    """Those who use an installation. `patience` is the longest that a person takes to answer, in seconds.

    `door` is the number of the one that they come by, where there are several.
    """

    fleet: Fleet
    random: random.Random
    patience: float = 0.0
    door: int = 0
    told: dict[UUID, str] = field(default_factory=dict)
    """Decisions whose answer was accepted → outcome."""

    runs: dict[UUID, str] = field(default_factory=dict)
    """Runs that were accepted → the story or key that they are for."""

    refused: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    """What somebody had to send once more, and why: one line each time."""

    _http: httpx.AsyncClient | None = None
    _answering: set[UUID] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> "People":
        limits = httpx.Limits(max_connections=50)
        url = self.fleet.of("api")[self.door].url
        self._http = httpx.AsyncClient(base_url=url, timeout=15, limits=limits)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        assert self._http is not None
        await self._http.aclose()

    async def send(self, method: str, path: str, *, by: str | None = None, **request: Any) -> httpx.Response:
        """Send until somebody answers something else than that he cannot now."""
        assert self._http is not None
        headers = dict(request.pop("headers", {}))
        if by is not None:
            headers["authorization"] = f"Bearer {self.fleet.ground.tokens[by]}"
        async with asyncio.timeout(PERSISTENCE_SECONDS):
            while True:
                try:
                    response = await self._http.request(method, path, headers=headers, **request)
                except httpx.TransportError as error:
                    why = repr(error)
                else:
                    if response.status_code != 503:
                        return response
                    why = response.text[:300]
                self.again.append(f"{time.strftime('%X')} {method} {path}: {why}")
                await asyncio.sleep(AGAIN_SECONDS)

    async def deliver(self, key: str) -> UUID:
        """Send a story as the tracker does, now and then twice. Returns the run that it must start."""
        body = story(key)
        headers = signature(body, self.fleet.ground.webhook_secret)
        for _ in range(self.random.choice((1, 1, 2))):
            response = await self.send("POST", "/api/public/workflows/events/jira", content=body, headers=headers)
            if response.status_code not in (200, 202):
                raise Refused(f"the story {key} was answered {response.status_code}: {response.text[:300]}")
        issue = json.loads(body)
        parts = ("issue_transitioned", key, issue["issue"]["id"], issue["changelog"]["id"], str(issue["timestamp"]))
        run_id = ids.triggered_run(ids.tenant_group(GROUP), "core-dev", f"jira:{':'.join(parts)}")
        self.runs[run_id] = key
        return run_id

    async def start(self, definition: str, context: Mapping[str, Any], *, key: str) -> UUID:
        """Start a run by hand; `key` is its own in the installation."""
        response = await self.send(
            "POST",
            f"{PREFIX}/definitions/{definition}/runs",
            by="dana@example.com",
            params={"wait": 5},
            json={"context": dict(context), "project_id": "core"},
            headers={"idempotency-key": key},
        )
        if response.status_code != 201:
            raise Refused(f"the start of {key} was answered {response.status_code}: {response.text[:300]}")
        run_id = UUID(response.json()["run_id"])
        self.runs[run_id] = key
        return run_id

    async def decide(self, decision_id: UUID, outcome: str, *, by: str, missing: bool = False) -> None:
        """Answer, and send the same answer again until it is accepted. `missing`: it may not be open yet."""
        path = f"{PREFIX}/decisions/{decision_id}/{outcome}"
        while True:
            response = await self.send(
                "POST", path, by=by, json={"comment": "as agreed"}, headers={"idempotency-key": f"{decision_id}"}
            )
            if response.status_code == 200:
                self.told[decision_id] = outcome
                return
            if not (missing and response.status_code == 404):
                raise Refused(f"decision {decision_id} was answered {response.status_code}: {response.text[:300]}")
            await asyncio.sleep(AGAIN_SECONDS)

    async def answer_stories(self) -> None:
        """Look at the inboxes for ever, and answer what is asked, each when its person gets to it."""
        while True:
            for person in sorted(set(ROLES.values())):
                response = await self.send("GET", f"{PREFIX}/inbox", by=person, params={"limit": 200})
                if response.status_code != 200:
                    raise Refused(f"the inbox was answered {response.status_code}: {response.text[:300]}")
                for item in response.json()["items"]:
                    decision = item["decision"]
                    decision_id = UUID(decision["decision_id"])
                    if ROLES.get(decision["step"]) == person and decision_id not in self._answering:
                        self._answering.add(decision_id)
                        outcome = self._outcome(UUID(item["run"]["run_id"]), decision["step"], decision["round"])
                        self.soon(self._answer(decision_id, outcome, person))
            await asyncio.sleep(LOOK_SECONDS)

    def soon(self, doing: Coroutine[None, None, object]) -> None:
        """Do something beside everything else; what is refused is kept."""

        async def watched() -> None:
            try:
                await doing
            except (Refused, TimeoutError) as error:
                self.refused.append(f"{type(error).__name__}: {error}")

        task = asyncio.create_task(watched())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finished(self) -> None:
        """Wait until everything that was begun beside is done."""
        await asyncio.gather(*self._tasks)

    async def _answer(self, decision_id: UUID, outcome: str, person: str) -> None:
        await asyncio.sleep(self.random.uniform(0, self.patience))
        await self.decide(decision_id, outcome, by=person)

    def _outcome(self, run_id: UUID, step: str, round_: int) -> str:
        """Stories differ: what is asked to be changed follows from the run's id, and nothing is asked twice."""
        picky = run_id.int % 4
        asked = {1: "po_review", 2: "design_review", 3: "release_approval"}.get(picky)
        return "request_changes" if step == asked and round_ == 1 else "approve"


__all__ = ["People", "Refused"]

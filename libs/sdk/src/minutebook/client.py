"""A client of the HTTP API: typed answers, typed errors."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from uuid import UUID

import httpx
from pydantic import BaseModel

from minutebook.models import (
    ArtifactView,
    BulkRequest,
    BulkResult,
    ChannelView,
    DeadLetterView,
    DecisionAccepted,
    DecisionView,
    DefinitionDiff,
    DefinitionPromoted,
    DefinitionSummary,
    DefinitionView,
    DelegateRequest,
    DelegationView,
    DeliverRequest,
    EffectSettled,
    EffectView,
    EventRouted,
    EventSummary,
    EventView,
    ForkRequest,
    GrantView,
    HistoryEntry,
    InboxItem,
    JsonObject,
    MeView,
    NoticeChanged,
    NoticeView,
    Page,
    PersonalFact,
    Problem,
    ReassignRequest,
    RegisterUserRequest,
    RunChanged,
    RunsFilter,
    RunsStarted,
    RunSummary,
    RunView,
    ScheduleChanged,
    ScheduleView,
    SettleRequest,
    StartRunItem,
    StartRunsRequest,
    SyncResult,
    TaskItem,
    UserView,
)
from minutebook.models.states import DecisionOutcome, SettleVerdict

M = TypeVar("M", bound=BaseModel)

PREFIX = "/api/public/admin/workflows"
DEFAULT_ADDRESS = "http://127.0.0.1:8080"
TIMEOUT_SECONDS = 30.0
BULK_TIMEOUT_SECONDS = 300.0
PAGE_SIZE = 100


class ApiError(Exception):
    """The API said no. `problem` is its answer, with a stable `code`."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem


class Unreachable(Exception):
    """Nobody answers at the address."""


class Client:
    """An asynchronous client; use it as a context manager.

    `address` falls back to `MINUTEBOOK_SERVER_ADDRESS`, then to `http://127.0.0.1:8080`; `api_key`, a personal access
    token or an API key, to `MINUTEBOOK_API_KEY`. Every method raises `ApiError` or `Unreachable`.
    """

    def __init__(self, address: str | None = None, api_key: str | None = None) -> None:
        self.address = (address or os.environ.get("MINUTEBOOK_SERVER_ADDRESS") or DEFAULT_ADDRESS).rstrip("/")
        key = api_key or os.environ.get("MINUTEBOOK_API_KEY")
        if not key:
            raise ValueError("no key: give api_key or set MINUTEBOOK_API_KEY")
        self._http = httpx.AsyncClient(
            base_url=self.address, headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_SECONDS
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._http.aclose()

    async def me(self) -> MeView:
        return await self._call(MeView, "GET", "/me")

    async def start_run(
        self,
        definition_id: str,
        context: JsonObject,
        *,
        project_id: str | None = None,
        variant: str | None = None,
        idempotency_key: str | None = None,
        wait: float = 0,
    ) -> RunChanged:
        """Start a run. The same idempotency key starts one run, however often it is sent.

        `wait` is how many seconds (60 at most) to wait for it to end, to be suspended, or to wait for somebody.
        """
        return await self._call(
            RunChanged,
            "POST",
            f"/definitions/{definition_id}/runs",
            json={"context": context, "project_id": project_id, "variant": variant},
            headers=_once(idempotency_key),
            **_waiting(wait),
        )

    async def start_runs(self, definition_id: str, items: Sequence[StartRunItem]) -> RunsStarted:
        """Start up to 500 runs of a definition; each is started or refused by itself, and the answers are in order."""
        request = StartRunsRequest(items=tuple(items))
        return await self._call(
            RunsStarted, "POST", f"/definitions/{definition_id}/runs:batch", json=request.model_dump(mode="json")
        )

    async def run(self, run_id: UUID | str, *, wait: float = 0) -> RunView:
        """A run; with `wait` once it has ended, is suspended or waits for somebody, or after that many seconds."""
        return await self._call(RunView, "GET", f"/runs/{run_id}", **_waiting(wait))

    def runs(
        self,
        *,
        definition: str | None = None,
        state: str | Sequence[str] | None = None,
        project: str | None = None,
        initiated_by: UUID | str | None = None,
        parent: UUID | str | None = None,
        created_from: datetime | None = None,
        created_before: datetime | None = None,
        context: Mapping[str, str] | None = None,
    ) -> AsyncIterator[RunSummary]:
        """Every run that the caller sees, newest first. `context` names plain values of the run's context."""
        filters = {
            "definition": definition,
            "state": state,
            "project": project,
            "initiated_by": initiated_by,
            "parent": parent,
            "created_from": created_from.isoformat() if created_from else None,
            "created_before": created_before.isoformat() if created_before else None,
            **{f"context.{key}": value for key, value in (context or {}).items()},
        }
        return self._pages(RunSummary, "/runs", filters)

    def history(self, run_id: UUID | str) -> AsyncIterator[HistoryEntry]:
        """A run's facts and those of its attempts, decisions, waits and effects, in the order in which they came."""
        return self._pages(HistoryEntry, f"/runs/{run_id}/history", {})

    async def artifact(self, run_id: UUID | str, step: str) -> ArtifactView:
        return await self._call(ArtifactView, "GET", f"/runs/{run_id}/artifacts/{step}")

    async def operate(self, run_id: UUID | str, act: str, reason: str | None = None) -> RunChanged:
        """Cancel, suspend or resume a run."""
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/{act}", json={"reason": reason} if reason else {})

    async def retry_step(self, run_id: UUID | str, step: str) -> RunChanged:
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/steps/{step}/retry", json={})

    async def complete_step(
        self,
        run_id: UUID | str,
        step: str,
        artifact: Any,
        *,
        comment: str | None = None,
        idempotency_key: str | None = None,
    ) -> RunChanged:
        """Complete a manual step with an artefact."""
        return await self._call(
            RunChanged,
            "POST",
            f"/runs/{run_id}/steps/{step}/complete",
            json={"artifact": artifact, "comment": comment},
            headers=_once(idempotency_key),
        )

    async def restart(self, run_id: UUID | str, *, idempotency_key: str | None = None) -> RunChanged:
        """Start a new run with the context of this one; answers the new run."""
        return await self._call(RunChanged, "POST", f"/runs/{run_id}/restart", json={}, headers=_once(idempotency_key))

    async def fork(
        self, run_id: UUID | str, request: ForkRequest | None = None, *, idempotency_key: str | None = None
    ) -> RunChanged:
        """Start a new run from a point of this one's history, by default the present; answers the new run."""
        return await self._call(
            RunChanged,
            "POST",
            f"/runs/{run_id}/fork",
            json=request.model_dump(mode="json") if request else {},
            headers=_once(idempotency_key),
        )

    async def bulk(
        self,
        act: Literal["retry", "cancel"],
        filter: RunsFilter,  # noqa: A002  what the request calls it
        *,
        confirm: int | None = None,
        reason: str | None = None,
    ) -> BulkResult:
        """Retry or cancel every run that a filter takes.

        Without `confirm` they are counted; with it, which must be that count, each is asked for by itself.
        """
        request = BulkRequest(act=act, filter=filter, confirm=confirm, reason=reason)
        return await self._call(
            BulkResult, "POST", "/runs:bulk", json=request.model_dump(mode="json"), timeout=BULK_TIMEOUT_SECONDS
        )

    def tasks(self) -> AsyncIterator[TaskItem]:
        """Every manual step that the caller may complete, those of the oldest runs first."""
        return self._pages(TaskItem, "/tasks", {})

    def inbox(self) -> AsyncIterator[InboxItem]:
        """Open decisions that the caller may answer, oldest first."""
        return self._pages(InboxItem, "/inbox", {})

    async def decision(self, decision_id: UUID | str) -> DecisionView:
        return await self._call(DecisionView, "GET", f"/decisions/{decision_id}")

    async def decide(
        self,
        decision_id: UUID | str,
        outcome: DecisionOutcome,
        *,
        comment: str | None = None,
        revised_artifact: Any = None,
        answer: Any = None,
        shown: str | None = None,
        idempotency_key: str | None = None,
    ) -> DecisionAccepted:
        """Answer a decision, or vote where a quorum is asked for; `answer` is that of a question.

        With `shown`, the `shown_digest` of what was looked at, it is refused when that has become another one.
        """
        body = {"comment": comment, "revised_artifact": revised_artifact, "answer": answer, "shown": shown}
        return await self._call(
            DecisionAccepted,
            "POST",
            f"/decisions/{decision_id}/{outcome}",
            json={key: value for key, value in body.items() if value is not None},
            headers=_once(idempotency_key),
        )

    async def reassign(
        self, decision_id: UUID | str, request: ReassignRequest, *, idempotency_key: str | None = None
    ) -> DecisionView:
        """Let a person answer in the place of another, or beside those who may. For administrators."""
        body = request.model_dump(mode="json", exclude_none=True)
        path = f"/decisions/{decision_id}/reassign"
        return await self._call(DecisionView, "POST", path, json=body, headers=_once(idempotency_key))

    def definitions(self) -> AsyncIterator[DefinitionSummary]:
        return self._pages(DefinitionSummary, "/definitions", {})

    async def definition(self, definition_id: str) -> DefinitionView:
        return await self._call(DefinitionView, "GET", f"/definitions/{definition_id}")

    async def sync(self, files: Mapping[str, str], *, canary_percent: int | None = None) -> SyncResult:
        """Declare the files of a `definitions/` folder: path → text.

        With `canary_percent` that share of new runs takes a changed workflow, until a version is promoted.
        """
        body: dict[str, Any] = {"files": dict(files)}
        if canary_percent is not None:
            body["canary_percent"] = canary_percent
        return await self._call(SyncResult, "PUT", "/definitions", json=body)

    async def diff(self, definition_id: str, *, before: str | None = None, after: str | None = None) -> DefinitionDiff:
        """Compare two versions, by default the one that new runs take with the one that was declared last."""
        hashes = {name: text for name, text in (("before", before), ("after", after)) if text}
        return await self._call(DefinitionDiff, "GET", f"/definitions/{definition_id}/diff", params=hashes)

    async def promote(self, definition_id: str, hash: str) -> DefinitionPromoted:  # noqa: A002  what it is called
        """Let every new run take this version; `hash` may be its beginning."""
        return await self._call(
            DefinitionPromoted, "POST", f"/definitions/{definition_id}/promote", json={"hash": hash}
        )

    def effects(self, *, state: str | None = None) -> AsyncIterator[EffectView]:
        """Writes to the outside world of runs that the caller sees."""
        return self._pages(EffectView, "/effects", {"state": state})

    async def effect(self, effect_id: UUID | str) -> EffectView:
        return await self._call(EffectView, "GET", f"/effects/{effect_id}")

    async def settle_effect(
        self,
        effect_id: UUID | str,
        verdict: SettleVerdict,
        *,
        arm: int,
        reference: str | None = None,
        comment: str | None = None,
        idempotency_key: str | None = None,
    ) -> EffectSettled:
        """Say what became of a write in doubt. `landed` may name what the target calls the record.

        `arm` names the call that was looked for: read the effect, look at its target, and send the arm that was read.
        """
        request = SettleRequest(verdict=verdict, arm=arm, reference=reference, comment=comment)
        return await self._call(
            EffectSettled,
            "POST",
            f"/effects/{effect_id}/settle",
            json=request.model_dump(mode="json", exclude_none=True),
            headers=_once(idempotency_key),
        )

    async def probe_effect(self, effect_id: UUID | str, *, idempotency_key: str | None = None) -> EffectSettled:
        """Ask the target now whether a write in doubt is there."""
        return await self._call(
            EffectSettled, "POST", f"/effects/{effect_id}/probe", json={}, headers=_once(idempotency_key)
        )

    def notices(
        self, *, run: UUID | str | None = None, state: Sequence[str] = (), channel: str | None = None
    ) -> AsyncIterator[NoticeView]:
        """What people were told, newest first."""
        chosen = {"run": None if run is None else str(run), "state": list(state) or None, "channel": channel}
        return self._pages(NoticeView, "/notices", chosen)

    async def retry_notice(self, notice_id: UUID | str, *, idempotency_key: str | None = None) -> NoticeChanged:
        """Send a notice once more that failed or is in doubt; an e-mail may be read twice then."""
        return await self._call(
            NoticeChanged, "POST", f"/notices/{notice_id}/retry", json={}, headers=_once(idempotency_key)
        )

    def channels(self) -> AsyncIterator[ChannelView]:
        """The channels that notices go out by, in order of id."""
        return self._pages(ChannelView, "/channels", {})

    def events(self, *, source: str | None = None, unmatched: bool | None = None) -> AsyncIterator[EventSummary]:
        """Inbound events, newest first; with `unmatched` those that nothing followed from."""
        said = None if unmatched is None else str(unmatched).lower()
        return self._pages(EventSummary, "/events", {"source": source, "unmatched": said})

    def dead_letters(self) -> AsyncIterator[DeadLetterView]:
        """What services gave up on, the one that failed last first. For administrators."""
        return self._pages(DeadLetterView, "/dead-letters", {})

    async def event(self, event_id: UUID | str) -> EventView:
        return await self._call(EventView, "GET", f"/events/{event_id}")

    async def replay_event(self, event_id: UUID | str, *, idempotency_key: str | None = None) -> EventRouted:
        """Route an event again, by what is declared and waits now."""
        return await self._call(
            EventRouted, "POST", f"/events/{event_id}/replay", json={}, headers=_once(idempotency_key)
        )

    async def deliver_event(
        self, event_id: UUID | str, run_id: UUID | str, step: str, *, idempotency_key: str | None = None
    ) -> EventRouted:
        """Hand an event to a run's waiting step, whatever that step asks for."""
        request = DeliverRequest(run_id=UUID(str(run_id)), step=step)
        return await self._call(
            EventRouted,
            "POST",
            f"/events/{event_id}/deliver",
            json=request.model_dump(mode="json"),
            headers=_once(idempotency_key),
        )

    def schedules(self, *, definition: str | None = None, state: str | None = None) -> AsyncIterator[ScheduleView]:
        """Schedules with their next firings, in order of their definition."""
        return self._pages(ScheduleView, "/schedules", {"definition": definition, "state": state})

    async def pause_schedule(self, schedule_id: UUID | str) -> ScheduleChanged:
        return await self._call(ScheduleChanged, "POST", f"/schedules/{schedule_id}/pause", json={})

    async def resume_schedule(self, schedule_id: UUID | str) -> ScheduleChanged:
        """Let it start runs again. What it would have started meanwhile is not made up for."""
        return await self._call(ScheduleChanged, "POST", f"/schedules/{schedule_id}/resume", json={})

    def delegations(self) -> AsyncIterator[DelegationView]:
        """Who lets whom decide in their place: from and to the caller, for an administrator everybody's."""
        return self._pages(DelegationView, "/delegations", {})

    async def delegate(self, request: DelegateRequest, *, idempotency_key: str | None = None) -> DelegationView:
        """Let a person decide in one's place, until a moment."""
        body = request.model_dump(mode="json", exclude_none=True)
        return await self._call(DelegationView, "POST", "/delegations", json=body, headers=_once(idempotency_key))

    async def end_delegation(self, delegation_id: UUID | str) -> DelegationView:
        """End a delegation before its time."""
        return await self._call(DelegationView, "DELETE", f"/delegations/{delegation_id}")

    def grants(self) -> AsyncIterator[GrantView]:
        """The caller's own grants, and for an administrator everybody's, in order of their server."""
        return self._pages(GrantView, "/grants", {})

    async def give_grant(
        self,
        server: str,
        token: str,
        *,
        user: str | None = None,
        expires_at: datetime | None = None,
        idempotency_key: str | None = None,
    ) -> GrantView:
        """Let runs that one owns write to an MCP server with this token. `user` is a service user's email or id."""
        body = {"server": server, "token": token, "user": user}
        if expires_at is not None:
            body["expires_at"] = expires_at.isoformat()
        return await self._call(GrantView, "POST", "/grants", json=body, headers=_once(idempotency_key))

    async def revoke_grant(self, grant_id: UUID | str) -> GrantView:
        """End a grant: no write that begins from now on is made with it."""
        return await self._call(GrantView, "DELETE", f"/grants/{grant_id}")

    def users(self) -> AsyncIterator[UserView]:
        """Everybody of the tenant group, in order of their email."""
        return self._pages(UserView, "/users", {})

    async def register_user(self, request: RegisterUserRequest) -> UserView:
        """Register a person or a service user. The same again changes nothing."""
        return await self._call(UserView, "POST", "/users", json=request.model_dump(mode="json"))

    async def deactivate_user(self, user_id: UUID | str) -> UserView:
        """End a user for good, with their tokens and grants."""
        return await self._call(UserView, "POST", f"/users/{user_id}/deactivate", json={})

    def user_history(self, user_id: UUID | str) -> AsyncIterator[PersonalFact]:
        """What was changed of a user, by whom, oldest first."""
        return self._pages(PersonalFact, f"/users/{user_id}/history", {})

    async def _pages(self, model: type[M], path: str, filters: Mapping[str, Any]) -> AsyncIterator[M]:
        query: dict[str, Any] = {"limit": PAGE_SIZE, **{k: v for k, v in filters.items() if v is not None}}
        while True:
            page: Page[M] = await self._call(Page[model], "GET", path, params=query)  # type: ignore[valid-type]
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    async def _call(self, model: type[M], method: str, path: str, **request: Any) -> M:
        try:
            response = await self._http.request(method, PREFIX + path, **request)
        except httpx.HTTPError as error:
            raise Unreachable(f"no answer from {self.address}: {type(error).__name__}") from error
        if response.is_success:
            return model.model_validate_json(response.content)
        raise ApiError(_problem(response))


def _once(idempotency_key: str | None) -> dict[str, str] | None:
    """The header that makes a repeated request the same one."""
    return {"idempotency-key": idempotency_key} if idempotency_key else None


def _waiting(seconds: float) -> dict[str, Any]:
    """What a request that waits needs: the answer may take that much longer than others."""
    return {"params": {"wait": seconds}, "timeout": TIMEOUT_SECONDS + seconds} if seconds else {}


def _problem(response: httpx.Response) -> Problem:
    try:
        return Problem.model_validate_json(response.content)
    except ValueError:
        return Problem(
            title=response.reason_phrase,
            status=response.status_code,
            code="http.error",
            detail=f"{response.request.url.path} answered {response.status_code} without a problem",
        )


__all__ = ["ApiError", "Client", "Unreachable"]

"""The caller, users, and the grants by which runs write in their name."""

from collections.abc import AsyncIterator
from datetime import datetime
from uuid import UUID

from minutebook.client.connection import Connection, once
from minutebook.models import GrantView, MeView, PersonalFact, RegisterUserRequest, UserView


class PeopleCalls(Connection):
    async def me(self) -> MeView:
        return await self._call(MeView, "GET", "/me")

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
        return await self._call(GrantView, "POST", "/grants", json=body, headers=once(idempotency_key))

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

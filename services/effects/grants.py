"""With whose credential a write is made: the grant of its run's owner, where the server takes one."""

from typing import Final
from uuid import UUID

from contracts import ids
from contracts.errors import Broken, Unavailable
from contracts.events.definition import ServerSynced
from contracts.events.run import UserRef
from libs.domain import identity
from libs.eventstore.port import EventStore, Loaded
from libs.telemetry.logs import get_logger
from libs.vault import Vault
from services.effects.refusal import Refusal

_MENDED_OUTSIDE: Final = ("sealing.", "secret.")
"""Beginnings of codes that tell of the installation's key, and not of the record."""

_log = get_logger("effects.grants")


class Grants:
    """Looks owners' grants up when a write is about to be announced, so that a revocation counts for the next one."""

    def __init__(self, store: EventStore, vault: Vault) -> None:
        self._store = store
        self._vault = vault

    async def secret(self, tenant_group: UUID, owner: UserRef, server: ServerSynced) -> str | Refusal | None:
        """Return the owner's secret for the server; None where the server's own is to be taken.

        A server that requires a grant and finds none that counts is `missing_data`; so is a grant whose secret is not
        there any more. A sealing key that is missing is `connector_unavailable`: mended from outside, then tried again.

        Raises:
            contracts.errors.Unavailable: the record does not answer; nothing is known.
        """
        if server.grants == "none":
            return None
        grant_id = ids.grant(tenant_group, owner.id, server.server_id)
        load = await self._store.load(identity.CATEGORY.name, {grant_id: 0, owner.id: 0})
        grant = _fold(load.streams[grant_id]).grant
        by_whom = _by_whom(_fold(load.streams[owner.id]), owner, server)
        if grant is None or not grant.usable(load.now):
            if server.grants == "optional":
                return None
            lack = "is none" if grant is None else "was revoked" if grant.revoked else "has ended"
            return Refusal(
                "missing_data",
                f"the MCP server {server.server_id!r} takes writes with a grant of the run's owner alone, and that of "
                f"user {owner.id} {lack}; {by_whom}",
            )
        try:
            secret = await self._vault.open(tenant_group, grant_id, grant.secret_id)
        except Unavailable as error:
            if not error.code.startswith(_MENDED_OUTSIDE):
                raise
            return Refusal("connector_unavailable", error.message)
        except Broken as error:
            _log.error("a grant does not open", grant_id=str(grant_id), code=error.code)
            secret = None
        if secret is not None:
            return secret
        lost = f"the grant of user {owner.id} for the MCP server {server.server_id!r} is not kept any more; {by_whom}"
        return Refusal("missing_data", lost)


def _by_whom(user: identity.State, owner: UserRef, server: ServerSynced) -> str:
    """The command that mends it, and who may give it.

    It goes into the history as it is, so people are named by their ids there.
    """
    if user.kind == "service_user":
        command = f"`minutebook grants give {server.server_id} --user {owner.id}` by an administrator"
    else:
        command = f"`minutebook grants give {server.server_id}` by that user"
    return f"{command} gives one, then retry the step"


def _fold(loaded: Loaded) -> identity.State:
    return identity.CATEGORY.fold(tuple(recorded.event for recorded in loaded.events))

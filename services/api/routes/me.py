"""Who asks."""

from typing import Final

from fastapi import APIRouter

from libs.domain.access import is_administrator
from minutebook.models import MeView
from services.api.door import PREFIX, SECURED, Caller, DoorRoute
from services.api.problems import documented

router: Final = APIRouter(prefix=PREFIX, tags=["me"], route_class=DoorRoute, dependencies=SECURED)


@router.get("/me", responses=documented(401, 403, 503))
async def get_me(caller: Caller) -> MeView:
    """The caller, as the token names it."""
    return MeView(
        kind=caller.kind,
        id=caller.id,
        name=caller.name,
        tenant_group=caller.tenant_group,
        tenant=caller.tenant,
        administrator=is_administrator(caller),
        roles=tuple(sorted(caller.roles)),
        groups=tuple(sorted(caller.groups)),
        projects=tuple(sorted(caller.projects)),
        scopes=tuple(sorted(caller.scopes)),
    )

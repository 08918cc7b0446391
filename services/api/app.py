"""Wiring of the api."""

from datetime import timedelta
from importlib.metadata import version

from fastapi import FastAPI

from libs.eventstore.letters import PostgresLetters
from libs.process import Tools
from libs.process.dbclock import DatabaseClock
from libs.sealing import Sealing
from libs.telemetry.outage import Outage
from libs.vault import Vault
from services.api import openapi, problems, reference
from services.api.auth import Authenticator
from services.api.decision_views import DecisionViews
from services.api.definition_views import DefinitionViews
from services.api.delegations import Delegations
from services.api.direct import Direct
from services.api.door import Door
from services.api.edge import Edge
from services.api.event_views import EventViews
from services.api.grants import Grants
from services.api.identity import Identity
from services.api.notice_views import NoticeViews
from services.api.people import People
from services.api.queries import Queries
from services.api.rates import Rates
from services.api.refusals import Refusals
from services.api.resealing import Resealing
from services.api.routes import ROUTERS, TAGS, pages, runs
from services.api.server import ApiService
from services.api.views import Views
from services.api.waiting import Waiting


def build(tools: Tools) -> ApiService:
    """Build the api on its own connections."""
    definitions = DefinitionViews(tools.store)
    pool = tools.require_pool()
    patience = timedelta(seconds=tools.settings.ask_timeout_seconds)
    identity = Identity(tools.store, tools.bus, patience=patience)
    vault = Vault(pool, Sealing(tools.secrets))
    grants = Grants(tools.store, pool, identity, vault)
    door = Door(
        tools=tools,
        auth=Authenticator(tools.store),
        queries=Queries(pool),
        views=Views(tools.store, pool, definitions),
        definitions=definitions,
        events=EventViews(tools.store),
        letters=PostgresLetters(tools.require_pool(), service="api"),
        waiting=Waiting(tools.bus, tools.store),
        clock=DatabaseClock(tools.store),
        notices=Outage(
            away="deliveries are stored but ingest is not told, the sweep will tell it",
            back="ingest is told of deliveries again",
            service="api",
        ),
        notice_views=NoticeViews(tools.store, pool),
        rates=Rates(per_second=tools.settings.webhooks_per_second_max, burst=tools.settings.webhooks_burst_max),
        refusals=Refusals(in_a_row_max=tools.settings.webhooks_refused_max),
        people=People(tools.store, pool, identity, grants),
        grants=grants,
        decisions=DecisionViews(tools.store),
        delegations=Delegations(tools.store, pool, identity),
    )
    app = FastAPI(
        title="Minutebook",
        version=version("minutebook"),
        description=openapi.DESCRIPTION,
        openapi_tags=TAGS,
        docs_url=None,  # `reference` serves it, without a host beside this one
        redoc_url=None,
        redirect_slashes=False,
        # The edge traces requests itself; FastAPI's own telemetry would record exceptions with their messages.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.door = door
    app.add_middleware(Direct, routes=runs.BUSIEST)
    app.add_middleware(Edge)
    problems.install(app)
    openapi.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(reference.router)
    app.include_router(pages.router)
    return ApiService(
        tools, app, door.waiting, duties=[Resealing(tools.secrets, vault, tools.store.mapper.people).watch]
    )

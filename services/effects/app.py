"""Wiring of the effects service."""

from datetime import timedelta

from contracts.errors import Rejected
from contracts.subjects import DURABLES
from libs.config import Settings
from libs.domain.effect import CALL_TIMEOUT_MAX, CATEGORY, OVERDUE_AFTER, decide
from libs.mcp import call_tool
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from libs.sealing import Sealing
from libs.vault import Vault
from services.effects.connectors import Connectors
from services.effects.grants import Grants
from services.effects.handlers import Handlers
from services.effects.ledger import Call, Ledger
from services.effects.turns import Turns


def build(tools: Tools, call: Call = call_tool) -> Service:
    """Connect the handlers to the durables of the service; nothing runs before `start`. `call` makes the tool calls."""
    store, bus, settings = tools.store, tools.bus, tools.settings
    owner = Owner(CATEGORY, decide, store=store, publisher=Publisher(bus, store))
    ledger = Ledger(
        owner=owner,
        store=store,
        connectors=Connectors(store, tools.secrets, Grants(store, Vault(tools.pool, Sealing(tools.secrets)))),
        turns=Turns(calls_max=settings.effect_calls, calls_per_server_max=settings.effect_calls_per_server),
        start_within=_start_within(settings),
        call=call,
    )
    handlers = Handlers(owner, store, ledger)
    durables = {durable.name: durable for durable in DURABLES}
    bus.subscribe(durables["effects-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["effects-wake"], wake_handler(handlers.on_wake))

    async def drain() -> None:
        await ledger.drain(timedelta(seconds=settings.drain_seconds))

    return Service("effects", tools, drains=[drain])


def _start_within(settings: Settings) -> timedelta:
    """How late a call may start: so that with the longest timeout and the margin it has ended before it is doubted."""
    latest = OVERDUE_AFTER - CALL_TIMEOUT_MAX - timedelta(seconds=settings.effect_margin_seconds)
    wanted = timedelta(seconds=settings.effect_start_seconds)
    if wanted > latest:
        raise Rejected(
            "settings.invalid",
            "MINUTEBOOK_EFFECT_START_SECONDS and MINUTEBOOK_EFFECT_MARGIN_SECONDS add up to more than "
            f"{(OVERDUE_AFTER - CALL_TIMEOUT_MAX).total_seconds():g} s, the time that a pending effect allows them",
        )
    return wanted

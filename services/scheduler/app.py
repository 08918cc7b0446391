"""Wiring of the scheduler."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final

from contracts.commands import PauseSchedule, ResumeSchedule
from contracts.errors import Unavailable
from contracts.subjects import DURABLES
from libs.ids import nonce
from libs.owner import Publisher
from libs.process import Duty, Service, Tools, envelope_handler, wake_handler
from libs.process.asks import answer
from libs.process.told import told
from libs.telemetry.logs import get_logger
from services.scheduler.admissions import Admissions
from services.scheduler.deliveries import Deliveries
from services.scheduler.gauges import Gauges
from services.scheduler.handlers import Handlers
from services.scheduler.incarnations import LOOK_EVERY, Incarnations
from services.scheduler.lease import Lease
from services.scheduler.schedules import Schedules
from services.scheduler.seals import Seals
from services.scheduler.sweep import Sweep
from services.scheduler.wakes import Wakes

RECONCILE_EVERY: Final = timedelta(minutes=1)
"""How often schedules are held to what definitions declare, in case nobody heard of a version."""

_log = get_logger("scheduler")


def build(tools: Tools) -> Service:
    """One duty per thing that only a clock can notice, all under one lease; nothing runs before `start`."""
    store, bus, settings = tools.store, tools.bus, tools.settings
    age = timedelta(seconds=settings.outbox_age_seconds)
    tick = timedelta(seconds=settings.scheduler_tick_seconds)
    publisher = Publisher(bus, store)
    admissions, schedules = Admissions(store, publisher), Schedules(store, publisher)
    handlers = Handlers(admissions, schedules)
    durables = {durable.name: durable for durable in DURABLES}
    answer(bus, store, PauseSchedule, schedules.pause)
    answer(bus, store, ResumeSchedule, schedules.resume)
    bus.subscribe(durables["scheduler-history"], envelope_handler(handlers.on_facts))
    bus.subscribe(durables["scheduler-wake"], wake_handler(handlers.on_wake))

    looks = {"admission": admissions.on_wake, "run": admissions.look}
    lease = Lease(store, nonce(), length=timedelta(seconds=settings.scheduler_lease_seconds))
    duties: list[Duty] = [
        _every(tick, lease, "wakes", Wakes(store, bus).send),
        _every(tick, lease, "sweep", Sweep(store, bus, age=age).publish),
        _every(tick, lease, "deliveries", Deliveries(store, bus, age=age).send),
        _every(max(tick, RECONCILE_EVERY), lease, "schedules", schedules.keep),
        _every(max(tick, LOOK_EVERY), lease, "incarnations", Incarnations(store, bus, looks).look),
    ]
    if tools.pool is not None:
        every = timedelta(seconds=settings.seal_seconds)
        duties += [
            Gauges(tools.pool, lease).keeping,
            _every(every, lease, "seals", Seals(tools.pool, tools.secrets).make),
        ]
    return Service("scheduler", tools, duties, on_stop=[lease.release])


def _every(tick: timedelta, lease: Lease, name: str, work: Callable[[], Awaitable[None]]) -> Duty:
    """A duty that works once per tick while this process leads. A tick that fails is the next one's to make good."""

    async def duty() -> None:
        failed = False
        while True:
            try:
                if await lease.held():
                    await work()
                failed = False
            except Unavailable as error:
                if not failed and not told(error):
                    _log.warning("duty waits", duty=name, code=error.code)
                failed = True
            await asyncio.sleep(tick.total_seconds())

    duty.__name__ = name
    return duty

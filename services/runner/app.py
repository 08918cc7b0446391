"""Wiring of the runner."""

import os
import socket
from collections.abc import Sequence

from contracts.errors import Rejected
from contracts.subjects import DURABLES
from libs.config import Settings
from libs.domain import attempt
from libs.owner import Owner, Publisher
from libs.process import Service, Tools, envelope_handler, wake_handler
from services.runner.duties import Keeper, RunsEnded, Wakes
from services.runner.executors import AnthropicExecutor, EchoExecutor, Executor
from services.runner.worker import Worker


def build(tools: Tools, executors: Sequence[Executor] | None = None) -> Service:
    """Build the runner on its own connections. `executors` take the place of the product's own.

    Raises:
        contracts.errors.Rejected: the settings would let leases end between two renewals.
    """
    _check(tools.settings)
    owner: Owner[attempt.State, attempt.Command] = Owner(
        attempt.CATEGORY, attempt.decide, store=tools.store, publisher=Publisher(tools.bus, tools.store)
    )
    if executors is None:
        executors = (AnthropicExecutor(tools.settings, tools.secrets), EchoExecutor())
    worker = Worker(
        runner=f"{socket.gethostname()}:{os.getpid()}",
        store=tools.store,
        bus=tools.bus,
        owner=owner,
        executors={executor.name: executor for executor in executors},
        settings=tools.settings,
    )
    ended = RunsEnded(owner, tools.store, worker.hand)
    wakes = Wakes(owner, tools.store, ended, tools.settings)

    durables = {durable.name: durable for durable in DURABLES}
    tools.bus.subscribe(durables["runner-work"], worker.on_bell)
    tools.bus.subscribe(durables["runner-history"], envelope_handler(ended.on_facts))
    tools.bus.subscribe(durables["runner-wake"], wake_handler(wakes.on_wake))
    keeper = Keeper(worker.hand, tools.store, ended, tools.settings)
    return Service("runner", tools, duties=[worker.claiming, keeper.keeping], drains=[worker.drain])


def _check(settings: Settings) -> None:
    """A lease must outlive a renewal that fails once."""
    if settings.runner_renew_seconds * 2 > settings.runner_lease_seconds:
        raise Rejected(
            "settings.invalid",
            f"MINUTEBOOK_RUNNER_RENEW_SECONDS is {settings.runner_renew_seconds:g}: it must be at most half of "
            f"MINUTEBOOK_RUNNER_LEASE_SECONDS, which is {settings.runner_lease_seconds:g}",
        )

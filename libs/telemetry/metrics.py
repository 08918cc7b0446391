"""Metrics of one process, in a registry of our own. Their names are an interface: docs/telemetry.md lists them.

Durations are seconds, money is integer microdollars. Labels have few values: never an id, a tenant or a message.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

FIGURES_LAST: Final = timedelta(seconds=10)
"""How long figures of the record are shown; whoever refreshes them does so several times in this span."""

_SHORT_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WAIT_SECONDS: Final = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_STEP_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0, 86_400.0, 604_800.0)
"""A step is a model's call or a person's week."""

_BATCH_SIZES: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500)

# A second series per counter and histogram that says when it began: nobody asks, and it doubles the page.
disable_created_metrics()  # type: ignore[no-untyped-call]

REGISTRY: Final = CollectorRegistry(auto_describe=True)
ProcessCollector(registry=REGISTRY)


@dataclass(frozen=True, slots=True)
class Figures:
    """What the record adds up to at one moment. `runs` has every state, those without runs too."""

    runs: Mapping[str, int]
    steps_queued: int
    decisions_waiting: int
    effects_in_doubt: int
    outbox_rows: int
    outbox_age_seconds: float
    dead_letters: int


class RecordFigures(Collector):
    """Gauges that are read from the database by one process of the installation.

    Absent while hidden and once they are older than `FIGURES_LAST`: a figure that nobody refreshes would lie.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._shown: tuple[Figures, float] | None = None

    def show(self, figures: Figures) -> None:
        """Show these from now on."""
        self._shown = (figures, self._clock())

    def hide(self) -> None:
        """Show nothing."""
        self._shown = None

    def describe(self) -> Iterable[Metric]:
        """The names, without a look at the figures."""
        return self._families()

    def collect(self) -> Iterable[Metric]:
        """The figures, while they are fresh."""
        shown = self._shown
        if shown is None or self._clock() - shown[1] > FIGURES_LAST.total_seconds():
            return []
        figures = shown[0]
        runs, *others = self._families()
        for state, count in figures.runs.items():
            runs.add_metric([state], count)
        values = (
            figures.steps_queued,
            figures.decisions_waiting,
            figures.effects_in_doubt,
            figures.outbox_rows,
            figures.outbox_age_seconds,
            figures.dead_letters,
        )
        for family, value in zip(others, values, strict=True):
            family.add_metric([], value)
        return [runs, *others]

    @staticmethod
    def _families() -> list[GaugeMetricFamily]:
        return [
            GaugeMetricFamily("workflow_runs", "Runs of all time, by the state that they are in.", labels=["state"]),
            GaugeMetricFamily("workflow_steps_queued", "Attempts of steps that wait for a runner."),
            GaugeMetricFamily("workflow_decisions_waiting", "Decisions that wait for a person's answer."),
            GaugeMetricFamily("minutebook_effects_in_doubt", "Effects that may have been done and cannot be known."),
            GaugeMetricFamily("minutebook_outbox_rows", "Statements whose facts are not known to be published."),
            GaugeMetricFamily("minutebook_outbox_age_seconds", "Age of the oldest of them; 0 when there is none."),
            GaugeMetricFamily("minutebook_dead_letters", "Dead letters that wait for somebody to look."),
        ]


RECORD: Final = RecordFigures()
REGISTRY.register(RECORD)

STEP_SECONDS: Final = Histogram(
    "workflow_step_duration_seconds",
    "From a step's beginning in its round to its success or failure, retries included.",
    ["kind"],
    buckets=_STEP_SECONDS,
    registry=REGISTRY,
)
STEP_COST_MICRODOLLARS: Final = Counter(
    "workflow_step_cost_microdollars",
    "What attempts of steps cost, as their runs recorded it.",
    registry=REGISTRY,
)

EFFECTS_WAITING: Final = Gauge(
    "minutebook_effects_waiting",
    "Effects that wait in this process for a call, by what holds them back.",
    ["held_by"],
    registry=REGISTRY,
)

APPEND_STREAMS: Final = Histogram(
    "minutebook_append_streams",
    "Streams in one append statement.",
    ["category"],
    buckets=_BATCH_SIZES,
    registry=REGISTRY,
)
APPEND_SECONDS: Final = Histogram(
    "minutebook_append_seconds",
    "Duration of an append statement, failed ones included.",
    ["category"],
    buckets=_SHORT_SECONDS,
    registry=REGISTRY,
)
APPEND_LOST: Final = Counter(
    "minutebook_append_lost",
    "Streams of an append whose version or claim was not the expected one any more.",
    ["category"],
    registry=REGISTRY,
)
APPEND_GUARDED: Final = Counter(
    "minutebook_append_guarded",
    "Streams of an append that a guard, such as the run being active, refused.",
    ["category"],
    registry=REGISTRY,
)

WAKE_LATE_SECONDS: Final = Histogram(
    "minutebook_wake_late_seconds",
    "How long after its moment a due wake was sent.",
    ["category"],
    buckets=_WAIT_SECONDS,
    registry=REGISTRY,
)
CLAIM_WAIT_SECONDS: Final = Histogram(
    "minutebook_claim_wait_seconds",
    "How long an attempt waited for a runner, from ready to claimed.",
    buckets=_WAIT_SECONDS,
    registry=REGISTRY,
)
LEASES_EXPIRED: Final = Counter(
    "minutebook_leases_expired",
    "Leases that ended unrenewed and were recorded as lost.",
    registry=REGISTRY,
)
MODEL_CALLS: Final = Counter(
    "minutebook_model_calls",
    "Model calls of recorded attempts, by model and by how the attempt ended.",
    ["model", "result"],
    registry=REGISTRY,
)

NOTICES: Final = Counter(
    "minutebook_notices",
    "Tries to send a notice that ended, by what became of it.",
    ["result"],
    registry=REGISTRY,
)

BUS_BATCH_MESSAGES: Final = Histogram(
    "minutebook_bus_batch_messages",
    "Messages that were handled as one batch.",
    ["durable"],
    buckets=_BATCH_SIZES,
    registry=REGISTRY,
)
BUS_REDELIVERED: Final = Counter(
    "minutebook_bus_redelivered",
    "Messages that had been delivered before.",
    ["durable"],
    registry=REGISTRY,
)
DEAD_LETTERED: Final = Counter(
    "minutebook_dead_lettered",
    "Messages, or parts of them, that a service gave up on and kept as dead letters.",
    ["durable"],
    registry=REGISTRY,
)
ASK_SECONDS: Final = Histogram(
    "minutebook_ask_seconds",
    "How long an owner took to answer a command, by what came of it: ok, or the kind of the error.",
    ["command", "result"],
    buckets=_SHORT_SECONDS,
    registry=REGISTRY,
)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe how long the body takes, also when it raises."""
    began = time.perf_counter()
    try:
        yield
    finally:
        histogram.observe(time.perf_counter() - began)


def render() -> tuple[bytes, str]:
    """The page of this process in Prometheus' text format, and its content type."""
    return generate_latest(REGISTRY), CONTENT_TYPE_LATEST

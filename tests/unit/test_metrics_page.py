"""The page of metrics: their names are an interface, and figures that nobody refreshes are not on it."""

import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from libs.telemetry import metrics
from libs.telemetry.metrics import FIGURES_LAST, Figures, RecordFigures

LISTED: Final = Path(__file__).parents[2] / "docs" / "telemetry.md"

FIGURES: Final = Figures(
    runs={"running": 2, "completed": 40},
    steps_queued=3,
    decisions_waiting=4,
    effects_in_doubt=1,
    outbox_rows=5,
    outbox_age_seconds=1.5,
    dead_letters=6,
)


def samples(page: bytes) -> dict[str, float]:
    return {
        sample.name + "".join(f"{{{k}={v}}}" for k, v in sample.labels.items()): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def test_the_labels_are_those_of_the_document() -> None:
    rows = re.findall(r"^\| `(\w+?)(?:_total)?` \| (?:counter|histogram) \| (.*?) \|", LISTED.read_text(), re.MULTILINE)
    documented = {name: () if labels == "—" else tuple(labels.split(", ")) for name, labels in rows}
    own = [metric for metric in vars(metrics).values() if isinstance(metric, Counter | Histogram)]
    assert {metric._name: metric._labelnames for metric in own} == documented


def test_the_figures_of_the_record_are_on_the_page_while_they_are_fresh() -> None:
    now = 100.0
    record, registry = RecordFigures(clock=lambda: now), CollectorRegistry(auto_describe=True)
    registry.register(record)
    assert samples(generate_latest(registry)) == {}

    record.show(FIGURES)
    assert samples(generate_latest(registry)) == {
        "workflow_runs{state=running}": 2,
        "workflow_runs{state=completed}": 40,
        "workflow_steps_queued": 3,
        "workflow_decisions_waiting": 4,
        "minutebook_effects_in_doubt": 1,
        "minutebook_outbox_rows": 5,
        "minutebook_outbox_age_seconds": 1.5,
        "minutebook_dead_letters": 6,
    }
    now += FIGURES_LAST.total_seconds() + 0.1
    assert samples(generate_latest(registry)) == {}

    record.show(FIGURES)
    record.hide()
    assert samples(generate_latest(registry)) == {}


def test_the_page_parses_and_is_only_of_ours() -> None:
    page, content_type = metrics.render()
    families = list(text_string_to_metric_families(page.decode()))
    assert content_type.startswith("text/plain; version=")
    assert {family.name.split("_")[0] for family in families} <= {"minutebook", "workflow", "process"}
    assert not [family.name for family in families if family.name.endswith("_created")]
    assert all(family.documentation for family in families)


def test_what_fails_is_timed_too() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("trial_seconds", "A trial.", registry=registry)
    with pytest.raises(KeyError), metrics.timed(histogram):
        raise KeyError
    assert registry.get_sample_value("trial_seconds_count") == 1

"""Traces: spans nest, go on from a traceparent, and say what kind of error ended them, never its message."""

import asyncio
from typing import Final

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode, format_span_id, format_trace_id

from contracts.errors import Rejected
from libs.telemetry import tracing
from libs.telemetry.tracing import current_traceparent, recorded, span

TRACE: Final = "0af7651916cd43dd8448eb211c80319c"
PARENT: Final = "b7ad6b7169203331"
TRACEPARENT: Final = f"00-{TRACE}-{PARENT}-01"


def finished(spans: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {each.name: each for each in spans.get_finished_spans()}


def parent_of(each: ReadableSpan) -> str | None:
    return format_span_id(each.parent.span_id) if each.parent else None


def id_of(each: ReadableSpan) -> str:
    assert each.context is not None
    return format_span_id(each.context.span_id)


def trace_of(each: ReadableSpan) -> str:
    assert each.context is not None
    return format_trace_id(each.context.trace_id)


def test_a_span_in_a_span_is_its_child_and_one_outside_begins_a_trace() -> None:
    with recorded() as spans:
        with span("outer"), span("inner"):
            pass
        with span("another"):
            pass
    found = finished(spans)
    assert parent_of(found["inner"]) == id_of(found["outer"])
    assert parent_of(found["outer"]) is None
    assert trace_of(found["inner"]) == trace_of(found["outer"]) != trace_of(found["another"])


def test_a_traceparent_that_is_given_goes_before_the_current_span() -> None:
    with recorded() as spans, span("around"), span("continued", traceparent=TRACEPARENT), span("below"):
        pass
    found = finished(spans)
    assert (trace_of(found["continued"]), parent_of(found["continued"])) == (TRACE, PARENT)
    assert parent_of(found["below"]) == id_of(found["continued"])
    assert trace_of(found["around"]) != TRACE


def test_what_is_sent_along_is_the_span_that_one_is_in() -> None:
    assert current_traceparent() is None
    with recorded() as spans:
        with span("continued", traceparent=TRACEPARENT):
            sent = current_traceparent()
        assert current_traceparent() is None
    assert sent == f"00-{TRACE}-{id_of(finished(spans)['continued'])}-01"


def test_without_tracing_the_context_is_passed_on_as_it_came() -> None:
    with span("nowhere", traceparent=TRACEPARENT):
        assert current_traceparent() == TRACEPARENT
    with span("nowhere"):
        assert current_traceparent() is None


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"])
def test_a_traceparent_that_is_none_begins_a_trace(traceparent: str) -> None:
    with recorded() as spans, span("begun", traceparent=traceparent):
        pass
    assert parent_of(finished(spans)["begun"]) is None


def test_an_error_marks_its_span_by_code_or_type_and_keeps_its_words_out() -> None:
    with recorded() as spans:
        with pytest.raises(Rejected), span("refused"):
            raise Rejected("decision.answered", "lena@example.com answered it", status=409)
        with pytest.raises(ValueError), span("broken"):
            raise ValueError("a payload, quoted")
        with span("fine", attributes={"step": "design"}):
            pass
    found = finished(spans)
    kinds = {name: (each.attributes or {}).get("error.type") for name, each in found.items()}
    assert kinds == {"refused": "decision.answered", "broken": "ValueError", "fine": None}
    assert found["refused"].status.status_code is found["broken"].status.status_code is StatusCode.ERROR
    assert found["fine"].status.status_code is StatusCode.UNSET
    assert (found["fine"].attributes or {})["step"] == "design"
    told = "".join(each.to_json() for each in found.values())
    assert "lena@example.com" not in told
    assert "quoted" not in told


async def test_spans_of_tasks_side_by_side_do_not_mix() -> None:
    async def work(name: str) -> None:
        with span(name):
            await asyncio.sleep(0)
            with span(f"{name}.inner"):
                await asyncio.sleep(0)

    with recorded() as spans:
        await asyncio.gather(work("one"), work("two"))
    found = finished(spans)
    assert {n: parent_of(found[f"{n}.inner"]) == id_of(found[n]) for n in ("one", "two")} == {"one": True, "two": True}


def test_recording_ends_with_its_block() -> None:
    with recorded() as outer:
        with recorded() as inner, span("inside"):
            pass
        with span("after"):
            pass
    with span("too late"):
        pass
    assert (list(finished(inner)), list(finished(outer))) == (["inside"], ["after"])


def test_without_an_endpoint_nothing_leaves_and_ids_are_minted_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    tracing.configure("test")
    try:
        with span("outer"):
            assert current_traceparent() is not None
    finally:
        tracing.shutdown()
    with span("afterwards"):
        assert current_traceparent() is None


def test_ids_alone_are_minted_as_spans_would_have_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child has its parent's trace and flags and an id of its own; outside it is as it was before."""
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    tracing.configure("test")
    try:
        with span("continued", traceparent=f"00-{TRACE}-{PARENT}-00"):
            outer = current_traceparent()
            with span("below"):
                inner = current_traceparent()
            assert current_traceparent() == outer
        for none in ("nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01"):
            with span("begun", traceparent=none):
                begun = (current_traceparent() or "").split("-")
            assert begun[1] not in {TRACE, "0" * 32}
            assert begun[3] == "01"
    finally:
        tracing.shutdown()
    assert current_traceparent() is None
    ids = [(text or "").split("-") for text in (outer, inner)]
    assert [(trace, flags) for _, trace, _, flags in ids] == [(TRACE, "00")] * 2
    assert len({PARENT, *(own for _, _, own, _ in ids)}) == 3

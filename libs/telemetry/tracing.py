"""Traces: one run is one trace, carried in message headers and event metadata as W3C trace context."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Final

from opentelemetry.context import attach, detach
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    NoOpTracerProvider,
    Span,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace import TracerProvider as AnyTracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from contracts.errors import MinutebookError

_SCOPE: Final = "minutebook"
_ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP_MODULE: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"

_PLAIN: Final = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
"""As this product writes it; the library reads whatever else may come."""

_propagator = TraceContextTextMapPropagator()
_ids = RandomIdGenerator()

Attributes = Mapping[str, str | bool | int | float]


class _Tracing:
    """Where spans go. Until `configure` runs they go nowhere and trace context is passed on as it came.

    `ids_only`: nobody looks at spans, but their ids are minted, for logs and for whoever exports further on.
    """

    provider: AnyTracerProvider = NoOpTracerProvider()
    tracer: Tracer = provider.get_tracer(_SCOPE)
    ids_only: bool = False

    @classmethod
    def use(cls, provider: AnyTracerProvider, *, ids_only: bool = False) -> None:
        """Send spans there from now on. Making a tracer costs more than a span, so it is made once."""
        cls.provider, cls.tracer, cls.ids_only = provider, provider.get_tracer(_SCOPE), ids_only


def configure(service: str) -> None:
    """Begin to trace this process. Spans are exported when an OTLP endpoint is set and its exporter installed."""
    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=True)
    exporter = _otlp_exporter()
    if exporter is not None:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    _Tracing.use(provider, ids_only=exporter is None)


def shutdown() -> None:
    """Export what is buffered and stop tracing."""
    if isinstance(_Tracing.provider, TracerProvider):
        _Tracing.provider.shutdown()
    _Tracing.use(NoOpTracerProvider())


def tracer() -> Tracer:
    """The tracer of this process, for spans that `span` cannot express."""
    return _Tracing.tracer


def span(
    name: str, *, traceparent: str | None = None, attributes: Attributes | None = None
) -> AbstractContextManager[Span]:
    """Be in a span: a child of `traceparent` when given, else of the current span, else the root of a new trace.

    An exception marks the span with the error's code or type; its message is left out, since it may quote payloads.
    """
    if _Tracing.ids_only:
        return _unseen(traceparent)
    return _seen(name, traceparent, attributes)


@contextmanager
def _unseen(traceparent: str | None) -> Iterator[Span]:
    """A span of which there is nothing but its ids: a tenth of the cost of one that could be exported."""
    parent = (_origin(traceparent) if traceparent else get_current_span()).get_span_context()
    opened = NonRecordingSpan(
        SpanContext(
            trace_id=parent.trace_id if parent.is_valid else _ids.generate_trace_id(),
            span_id=_ids.generate_span_id(),
            is_remote=False,
            trace_flags=parent.trace_flags if parent.is_valid else TraceFlags(TraceFlags.SAMPLED),
        )
    )
    token = attach(set_span_in_context(opened))
    try:
        yield opened
    finally:
        detach(token)


def _origin(traceparent: str) -> Span:
    """The span that a `traceparent` names; an invalid one, as of no trace, when it names none."""
    if (found := _PLAIN.fullmatch(traceparent)) is not None:
        trace_id, span_id, flags = (int(part, 16) for part in found.groups())
        return NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags)))
    return get_current_span(_propagator.extract({"traceparent": traceparent}))


@contextmanager
def _seen(name: str, traceparent: str | None, attributes: Attributes | None) -> Iterator[Span]:
    context = _propagator.extract({"traceparent": traceparent}) if traceparent else None
    with tracer().start_as_current_span(
        name,
        context=context,
        attributes=dict(attributes or {}),
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except Exception as error:
            kind = error.code if isinstance(error, MinutebookError) else type(error).__name__
            opened.set_attribute("error.type", kind)
            opened.set_status(Status(StatusCode.ERROR))
            raise


def current_traceparent() -> str | None:
    """The current span as W3C `traceparent`, to be sent along; None outside of a trace."""
    current = get_current_span().get_span_context()
    if not current.is_valid:
        return None
    return f"00-{current.trace_id:032x}-{current.span_id:016x}-{current.trace_flags:02x}"


@contextmanager
def recorded() -> Iterator[InMemorySpanExporter]:
    """Collect the finished spans in memory meanwhile, for tests."""
    before = _Tracing.provider
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    _Tracing.use(provider)
    try:
        yield exporter
    finally:
        _Tracing.use(before)
        provider.shutdown()


def _otlp_exporter() -> SpanExporter | None:
    """The exporter is an optional package: without it, or without an endpoint, nothing leaves the process."""
    if not any(os.environ.get(name) for name in _ENDPOINTS):
        return None
    try:
        exporter: SpanExporter = import_module(_OTLP_MODULE).OTLPSpanExporter()
    except ModuleNotFoundError:
        return None
    return exporter

"""Structured logs on stderr: constant messages, everything else in fields, secrets masked."""

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, Final, TextIO, cast

import structlog
from opentelemetry import trace
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

MASK: Final = "***"
MASK_DEPTH_MAX: Final = 8

_SECRET_KEY: Final = re.compile(
    r"(^|[_\-.])(authorization|passwords?|passwd|secrets?|credentials?|cookies?|api[_\-]?keys?|tokens?)$",
    re.IGNORECASE,
)
_URL_PASSWORD: Final = re.compile(r"(?P<before>\b[a-z][a-z0-9+.\-]*://[^\s:/@]*:)[^\s/]+(?=@)", re.IGNORECASE)
_BEARER: Final = re.compile(r"(?P<before>\b(?:bearer|basic) )[\w\-.~+/]{8,}=*", re.IGNORECASE)

_QUIET_LIBRARIES: Final = (
    "aiosmtplib",
    "anthropic",
    "asyncio",
    "faststream",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "mcp",
    "nats",
)
"""Below a warning they tell of addresses, which may be secrets, and of prompts."""


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger that names its part of the product. It may be made before `configure` ran."""
    return cast(FilteringBoundLogger, structlog.get_logger(component=name))


def configure(service: str, *, level: str = "info", stream: TextIO | None = None) -> None:
    """Send all logs of this process, the libraries' included, to `stream` (stderr when None).

    Lines are for people on a terminal and JSON elsewhere. Call it again to change the stream.
    """
    output = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _Named(service),
        _add_trace,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.ExtraAdder(), _add_library, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_rendering(output.isatty())],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for library in _QUIET_LIBRARIES:
        logging.getLogger(library).setLevel(logging.WARNING)
    # It tells every try to reconnect with a traceback; whose pool it is tells once that the database is away.
    logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)


def mask(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Hide what looks like a secret: values of telling keys, passwords in URLs, bearer tokens.

    Numbers are kept, so that counts of tokens stay readable.
    """
    return cast(EventDict, _masked(event, 0))


def _rendering(terminal: bool) -> list[Processor]:
    # Tracebacks become text before they are masked, and show no local variables: those hold payloads and secrets.
    if terminal:
        return [structlog.processors.format_exc_info, mask, structlog.dev.ConsoleRenderer()]
    return [structlog.processors.format_exc_info, mask, structlog.processors.JSONRenderer()]


class _Named:
    """Says which service speaks, unless the line says it itself."""

    def __init__(self, service: str) -> None:
        self._service = service

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        event.setdefault("service", self._service)
        return event


def _add_trace(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        event.setdefault("trace_id", trace.format_trace_id(context.trace_id))
    return event


def _add_library(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    record = cast(logging.LogRecord, event["_record"])
    event.setdefault("component", record.name)
    return event


def _masked(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return _BEARER.sub(rf"\g<before>{MASK}", _URL_PASSWORD.sub(rf"\g<before>{MASK}", value))
    if depth >= MASK_DEPTH_MAX:
        return value if value is None or isinstance(value, (bool, int, float)) else MASK
    if isinstance(value, (Mapping, MutableMapping)):
        return {key: MASK if _is_secret(key, item) else _masked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [_masked(item, depth + 1) for item in value]
    return value


def _is_secret(key: object, value: object) -> bool:
    if value is None or isinstance(value, (bool, int, float)):
        return False
    return isinstance(key, str) and _SECRET_KEY.search(key) is not None

"""Logs: JSON outside a terminal, constant messages, and no secret in any corner of a line."""

import ast
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from libs.telemetry import logs
from libs.telemetry.logs import MASK, configure, get_logger
from libs.telemetry.tracing import recorded, span

ROOT: Final = Path(__file__).parents[2]
LEVELS: Final = {"debug", "info", "warning", "error", "exception", "critical"}

SECRET: Final = "hunter2-and-more"


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """`configure` is the process's; give it back."""
    root = logging.getLogger()
    handlers, level, config = list(root.handlers), root.level, structlog.get_config()
    yield
    root.handlers, root.level = handlers, level
    structlog.configure(**config)


@pytest.fixture
def stream() -> io.StringIO:
    """Where the lines of a service go that nobody watches."""
    written = io.StringIO()
    configure("planner", stream=written)
    return written


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_outside_a_terminal_a_line_is_one_json_object_that_names_who_speaks(stream: io.StringIO) -> None:
    get_logger("owner").bind(run_id="7").warning("claim not given back", code="claim.lost", tries=3)
    (line,) = lines(stream)
    moment = line.pop("timestamp")
    assert moment.endswith("Z")
    assert line == {
        "event": "claim not given back",
        "level": "warning",
        "service": "planner",
        "component": "owner",
        "run_id": "7",
        "code": "claim.lost",
        "tries": 3,
    }


def test_on_a_terminal_a_line_is_for_people() -> None:
    terminal = Terminal()
    configure("planner", stream=terminal)
    get_logger("owner").info("service started", token=SECRET)
    (line,) = terminal.getvalue().splitlines()
    assert "service started" in line
    assert SECRET not in line
    with pytest.raises(json.JSONDecodeError):
        json.loads(line)


def test_loggers_made_before_the_configuration_follow_it() -> None:
    early = get_logger("early")
    first, second = io.StringIO(), io.StringIO()
    configure("one", stream=first)
    early.info("told")
    configure("two", stream=second)
    early.info("told")
    assert [line["service"] for line in lines(first) + lines(second)] == ["one", "two"]
    assert len(lines(first)) == len(lines(second)) == 1


def test_libraries_speak_the_same_way_and_only_when_it_matters(stream: io.StringIO) -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)  # a server of another test may have said otherwise
    logging.getLogger("uvicorn.error").info("a line of %s", "theirs", extra={"api_key": SECRET})
    logging.getLogger("asyncio").info("chatter")
    logging.getLogger("nats.aio.client").warning("lost nats://planner:%s@127.0.0.1:4222", SECRET)
    told = lines(stream)
    assert [(line["event"].partition(":")[0], line["component"]) for line in told] == [
        ("a line of theirs", "uvicorn.error"),
        ("lost nats", "nats.aio.client"),
    ]
    assert SECRET not in stream.getvalue()


def test_lower_levels_are_left_out(stream: io.StringIO) -> None:
    get_logger("owner").debug("detail")
    configure("planner", level="debug", stream=stream)
    get_logger("owner").debug("detail")
    assert len(lines(stream)) == 1


def test_a_line_in_a_span_names_its_trace(stream: io.StringIO) -> None:
    with recorded(), span("work") as opened:
        get_logger("owner").info("inside")
    get_logger("owner").info("outside")
    inside, outside = lines(stream)
    assert inside["trace_id"] == format(opened.get_span_context().trace_id, "032x")
    assert "trace_id" not in outside


@pytest.mark.parametrize(
    "field",
    [
        {"password": SECRET},
        {"postgres_passwd": SECRET},
        {"X-API-Key": SECRET},
        {"anthropic_api_key": SECRET},
        {"Authorization": SECRET},
        {"access_token": SECRET},
        {"client.secret": SECRET},
        {"cookie": SECRET},
        {"credentials": {"user": "planner", "value": SECRET}},
        {"settings": {"nested": [{"deeper": {"secret": SECRET}}]}},
        {"dsn": f"postgresql://minutebook_app:{SECRET}@db.example.com:5432/minutebook?sslmode=require"},
        {"dsn": f"postgresql://:{SECRET}@/minutebook?host=/run"},
        {"servers": ["nats://127.0.0.1:4222", f"nats://runner:{SECRET}@10.0.0.7:4222"]},
        {"url": f"https://user:{SECRET}@with@signs@example.com"},
        {"header": f"Bearer {SECRET}"},
        {"header": f"basic {SECRET}=="},
        {"reason": f"cannot connect to amqp://u:{SECRET}@host/ as asked"},
    ],
    ids=str,
)
def test_what_looks_like_a_secret_is_masked_wherever_it_stands(stream: io.StringIO, field: dict[str, Any]) -> None:
    get_logger("owner").info("configured", **field)
    assert SECRET not in stream.getvalue()
    assert MASK in stream.getvalue()


def test_a_secret_in_a_message_is_masked_too(stream: io.StringIO) -> None:
    get_logger("owner").info(f"connected to postgresql://app:{SECRET}@db/minutebook")
    assert lines(stream)[0]["event"] == f"connected to postgresql://app:{MASK}@db/minutebook"


def test_counts_ids_and_addresses_are_kept(stream: io.StringIO) -> None:
    kept = {
        "tokens": 1_234,
        "password": None,
        "url": "nats://127.0.0.1:4222",
        "dsn": "postgresql://minutebook_app@db/minutebook",
        "tokenizer": "plain",
        "email": "sam@example.com",
        "reason": "at 12:30 the bearer was late",
    }
    get_logger("owner").info("configured", **kept)
    assert lines(stream)[0].items() >= kept.items()


def test_a_value_without_end_is_cut_off(stream: io.StringIO) -> None:
    deep: Any = SECRET
    for _ in range(logs.MASK_DEPTH_MAX + 5):
        deep = {"inner": deep}
    get_logger("owner").info("deep", value=deep)
    assert SECRET not in stream.getvalue()


def test_a_traceback_is_masked_and_shows_no_local_variables(stream: io.StringIO) -> None:
    def connect(dsn: str) -> None:
        local = f"{dsn} and {SECRET}"
        raise OSError(f"no answer from {dsn} ({len(local)})")

    try:
        connect(f"postgresql://app:{SECRET}@db/minutebook")
    except OSError:
        get_logger("owner").exception("store failed")
    (line,) = lines(stream)
    assert "OSError: no answer from postgresql://app:***@db/minutebook" in line["exception"]
    assert SECRET not in stream.getvalue()


def test_messages_are_constant() -> None:
    varying = [
        f"{path.relative_to(ROOT)}:{call.lineno}: {ast.unparse(call)}"
        for folder in ("libs", "services")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and _logs(call) and not (call.args and _constant(call.args[0]))
    ]
    assert varying == []


def _logs(call: ast.Call) -> bool:
    target = call.func
    if not isinstance(target, ast.Attribute) or target.attr not in LEVELS:
        return False
    return ast.unparse(target.value).rpartition(".")[2].removeprefix("_") == "log"


def _constant(message: ast.expr) -> bool:
    """A text, one of two, or one that an object was given when it was made."""
    match message:
        case ast.Constant(value=str()) | ast.Attribute(value=ast.Name(id="self")):
            return True
        case ast.IfExp(body=body, orelse=orelse):
            return _constant(body) and _constant(orelse)
        case _:
            return False

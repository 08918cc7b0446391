"""Two lines per outage, however many calls fail and however unsteady its edges are."""

from structlog.testing import capture_logs

from libs.telemetry.outage import QUIET_SECONDS, Outage


def test_it_is_said_once_when_it_goes_and_once_when_it_is_back() -> None:
    now = 100.0
    with capture_logs() as logs:
        outage = Outage(away="it is away", back="it is back", clock=lambda: now, service="planner")
        outage.back()
        for _ in range(5):
            outage.away(code="it.gone")
            now += 1
        assert outage.lasting
        now += QUIET_SECONDS
        outage.back()
        outage.back()
    assert [(log["event"], log["log_level"], log["service"]) for log in logs] == [
        ("it is away", "warning", "planner"),
        ("it is back", "info", "planner"),
    ]
    assert logs[0]["code"] == "it.gone"
    assert logs[1]["seconds"] == 4.0
    assert not outage.lasting


def test_calls_that_still_succeed_while_it_goes_do_not_bring_it_back() -> None:
    now = 100.0
    with capture_logs() as logs:
        outage = Outage(away="it is away", back="it is back", clock=lambda: now)
        for _ in range(3):
            outage.away()
            now += QUIET_SECONDS / 2
            outage.back()
        assert [log["event"] for log in logs] == ["it is away"]
        now += QUIET_SECONDS
        outage.back()
        outage.away()
    assert [log["event"] for log in logs] == ["it is away", "it is back", "it is away"]


def test_one_that_nobody_calls_any_more_is_back_when_the_quiet_has_passed() -> None:
    now = 100.0
    with capture_logs() as logs:
        outage = Outage(away="it is away", back="it is back", quiet_seconds=5, clock=lambda: now)
        outage.away()
        now += 10
        outage.look()
        assert outage.lasting, "nothing succeeded yet"
        outage.away()
        now += 1
        outage.back()
        assert outage.lasting, "too soon"
        now += 5
        outage.look()
    assert [log["event"] for log in logs] == ["it is away", "it is back"]

"""Fault points: they kill where and when the environment says, and each is where its name says."""

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from contracts.errors import Broken
from libs.faultpoints import FAULTPOINTS, VARIABLE, faultpoint

ROOT: Final = Path(__file__).parents[2]

PASSING: Final = """
import sys
from libs.faultpoints import faultpoint
for name in sys.argv[1:]:
    faultpoint(name)
    print(name, flush=True)
"""


def passing(*names: str, setting: str | None) -> subprocess.CompletedProcess[str]:
    """A process that comes by these fault points, one after the other, and says which it survived."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    if setting is not None:
        environment[VARIABLE] = setting
    return subprocess.run(
        [sys.executable, "-c", PASSING, *names],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_unset_it_does_nothing() -> None:
    ended = passing("append.before", "publish.acked", setting=None)
    assert (ended.returncode, ended.stdout.split()) == (0, ["append.before", "publish.acked"])


def test_it_kills_at_the_place_that_is_named_and_nothing_can_catch_that() -> None:
    ended = passing("append.before", "append.committed", "publish.before", setting="append.committed")
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["append.before"])


def test_it_kills_at_the_pass_that_is_named() -> None:
    ended = passing(*["ask.handled"] * 5, setting="ask.handled:3")
    assert (ended.returncode, ended.stdout.split()) == (-signal.SIGKILL, ["ask.handled"] * 2)


@pytest.mark.parametrize("setting", ["append.somewhere", "append.before:0", "append.before:x", "append.before:-1"])
def test_a_setting_that_means_nothing_is_refused_at_once(setting: str) -> None:
    ended = passing(setting=setting)
    assert ended.returncode == 1
    assert VARIABLE in ended.stderr


def test_a_place_that_is_not_listed_is_refused() -> None:
    with pytest.raises(Broken, match=r"libs\.faultpoints\.FAULTPOINTS"):
        faultpoint("append.somewhere")


def test_every_fault_point_is_passed_somewhere_and_only_listed_ones_are() -> None:
    passed = {
        call.args[0].value
        for folder in ("libs", "services")
        for path in (ROOT / folder).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id == "faultpoint"
        and isinstance(call.args[0], ast.Constant)
    }
    assert passed == set(FAULTPOINTS)

"""Processes whose wall clock is wrong: a library in front of the system's shifts it, and no monotonic clock."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

_VARIABLE: Final = "WALL_CLOCK_SHIFT_SECONDS"
_SOURCE: Final = f"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t shift(void) {{
    const char *seconds = getenv("{_VARIABLE}");
    return seconds ? atol(seconds) : 0;
}}

int clock_gettime(clockid_t clock, struct timespec *now) {{
    int failed = (int) syscall(SYS_clock_gettime, clock, now);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return failed;
}}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {{
    int failed = (int) syscall(SYS_gettimeofday, now, zone);
    if (!failed && now)
        now->tv_sec += shift();
    return failed;
}}

time_t time(time_t *into) {{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into)
        *into = now.tv_sec;
    return now.tv_sec;
}}
"""


class WrongClocks:
    """Makes environments in which programs that are started see another time of day."""

    def __init__(self, library: Path) -> None:
        self._library = library

    def ahead(self, seconds: int) -> dict[str, str]:
        """What to add to the environment of a process whose clock is so much ahead; behind, when it is negative."""
        return {"LD_PRELOAD": str(self._library), _VARIABLE: str(seconds)}


def wrong_clocks(folder: Path) -> WrongClocks:
    """Compile the library into a folder. Skips the test where there is no compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("a clock is shifted by a library that `cc` has to compile, and there is none here")
    source, library = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", library, source], check=True)
    return WrongClocks(library)


__all__ = ["WrongClocks", "wrong_clocks"]

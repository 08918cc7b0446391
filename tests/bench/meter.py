"""What a measurement cost: CPU, memory, commits, WAL, and how much of the machine others used meanwhile."""

import os
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Final, Self

import asyncpg
import psutil

NOISY_SHARE: Final = 0.1
"""Above this share of the machine's CPU used by others a result is marked as noisy."""

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SYNCS: Final = 200
_PROBES: Final = 5
_PROBED: Final = 300_000


@dataclass(slots=True)
class Cost:
    """What was used between the beginning and the end of a measurement."""

    seconds: float = 0.0
    cpu_seconds: dict[str, float] = field(default_factory=dict)
    peak_mib: dict[str, float] = field(default_factory=dict)
    commits: int = 0
    wal_bytes: int = 0
    other_cpu_share: float = 0.0

    @property
    def noisy(self) -> bool:
        return self.other_cpu_share > NOISY_SHARE


class Meter:
    """Measures while it is entered. Everything that this process has started is ours; all else is others'."""

    def __init__(self, database: asyncpg.Connection) -> None:
        self._database = database
        self.cost = Cost()

    async def __aenter__(self) -> Self:
        self._wal, self._commits = await self._database_counters()
        self._cpu = _cpu_by_name()
        self._busy = _busy_seconds()
        self._began = time.perf_counter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cost = self.cost
        cost.seconds = time.perf_counter() - self._began
        busy, cpu = _busy_seconds() - self._busy, _cpu_by_name()
        cost.cpu_seconds = {name: round(seconds - self._cpu.get(name, 0.0), 2) for name, seconds in sorted(cpu.items())}
        ours = sum(cost.cpu_seconds.values())
        cost.other_cpu_share = round(max(busy - ours, 0.0) / (cost.seconds * (os.cpu_count() or 1)), 3)
        cost.peak_mib = _peaks()
        wal, commits = await self._database_counters()
        cost.wal_bytes, cost.commits = wal - self._wal, commits - self._commits

    async def _database_counters(self) -> tuple[int, int]:
        row = await self._database.fetchrow(
            "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint as wal,"
            " (select xact_commit from pg_stat_database where datname = current_database()) as commits"
        )
        return row["wal"], row["commits"]


def disk_probe() -> float:
    """The median of an 8 kB write and its fdatasync in this machine's temporary folder, in milliseconds."""
    times = []
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        file = os.open(Path(folder) / "probe", os.O_WRONLY | os.O_CREAT)
        try:
            for _ in range(_SYNCS):
                began = time.perf_counter()
                os.pwrite(file, b"\0" * 8192, 0)
                os.fdatasync(file)
                times.append(time.perf_counter() - began)
        finally:
            os.close(file)
    return round(median(times) * 1e3, 3)


def python_probe() -> float:
    """The median of what a fixed piece of Python takes, in milliseconds of CPU.

    It tells how fast this interpreter is on this machine today: figures of days that differ in it are not comparable.
    """
    times = []
    for _ in range(_PROBES):
        began = time.process_time()
        table: dict[int, tuple[int, str]] = {}
        digits = 0
        for number in range(_PROBED):
            table[number % 1_000] = number, str(number)
            digits += len(table[number % 1_000][1])
        times.append(time.process_time() - began)
    return round(median(times) * 1e3, 1)


def name_of(process: psutil.Process) -> str:
    """A process as the records name it: its service, its server, or the load generator itself."""
    if process.pid == os.getpid():
        return "load"
    words = process.cmdline()
    if "serve" in words:
        return words[words.index("serve") + 1]
    return "postgres" if "postgres" in process.name() else process.name()


def _ours() -> list[tuple[str, psutil.Process]]:
    me = psutil.Process()
    found = []
    for process in (me, *me.children(recursive=True)):
        try:
            found.append((name_of(process), process))
        except psutil.Error:  # it has just ended
            continue
    return found


def _cpu_by_name() -> dict[str, float]:
    """CPU seconds by name. A server's own ended children count too; those of the load generator are listed."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for name, process in _ours():
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        seconds[name] += times.user + times.system
        if name == "postgres":
            seconds[name] += times.children_user + times.children_system
    return dict(seconds)


def _peaks() -> dict[str, float]:
    """Peak resident memory in MiB since each process began; of the database's many the largest."""
    peaks: dict[str, float] = {}
    for name, process in _ours():
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            continue
        kib = next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)
        peaks[name] = max(peaks.get(name, 0.0), round(kib / 1024, 1))
    return dict(sorted(peaks.items()))


def _busy_seconds() -> float:
    user, nice, system, _idle, _iowait, irq, softirq, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq) / _TICKS

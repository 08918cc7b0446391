"""Services as an installation runs them: the installed command, its environment, its log, its ops port."""

import base64
import json
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from tests.support.stack import COMMAND, environment, eventually

SECONDS_MAX: Final = 60.0

SEALED: Final = {"MINUTEBOOK_SECRET_SEALING_KEY": base64.b64encode(bytes(32)).decode()}
"""The sealing key that an installation cannot do without."""


class Served:
    """A `minutebook serve`, ended by the end of its context if not before."""

    def __init__(self, *names: str, log: Path, env: Mapping[str, str]) -> None:
        self.names = names
        self._log = log
        sealed = {} if "MINUTEBOOK_SECRETS_DIR" in env else SEALED
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [COMMAND, "serve", *names],
                env=environment(**{"MINUTEBOOK_OPS_PORT": "0", "MINUTEBOOK_HTTP_PORT": "0", **sealed, **env}),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def said(self) -> str:
        """Everything that it has written."""
        return self._log.read_text()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its log, which is JSON outside a terminal."""
        return [json.loads(line) for line in self.said.splitlines(keepends=True) if line.endswith("}\n")]

    def up(self) -> dict[str, Any]:
        """Wait until it serves; returns the line in which it says where."""

        def listening() -> dict[str, Any] | None:
            assert self.process.poll() is None, self.said
            return next((line for line in self.lines if line["event"] == "listening" and "ops_url" in line), None)

        return eventually(f"{self.names} listen", listening)

    def ops(self, path: str) -> httpx.Response:
        """What its ops port answers."""
        return httpx.get(self.up()["ops_url"] + path, timeout=SECONDS_MAX)

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ended(self, *, within: float = SECONDS_MAX) -> tuple[int, float]:
        """Wait for its end: (exit code, seconds that it took)."""
        began = time.monotonic()
        code = self.process.wait(within)
        return code, time.monotonic() - began

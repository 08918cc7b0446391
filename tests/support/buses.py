"""A bus without a server, for tests that look at one side of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from contracts.errors import Unavailable
from contracts.subjects import DurableSpec
from libs.bus.port import AskHandler, BatchHandler, Listener, Message


@dataclass
class QuietBus:
    """The bus's port: it keeps what is published, delivers nothing and answers nothing. `away` refuses to publish."""

    published: list[Message] = field(default_factory=list)
    away: bool = False

    def subscribe(self, durable: DurableSpec, handler: BatchHandler, *, batch_max: int = 200) -> None:
        """Nothing comes."""

    def answer(self, subject: str, handler: AskHandler) -> None:
        """Nobody asks."""

    def listen(self, subject: str, listener: Listener) -> None:
        """Nothing is heard."""

    async def start(self) -> None:
        """It is there."""

    async def stop(self) -> None:
        self.away = True

    async def publish(self, messages: Sequence[Message]) -> None:
        if self.away:
            raise Unavailable("bus.away", "the test took the bus away")
        self.published += messages

    async def ask(self, subject: str, data: bytes, *, headers: Mapping[str, str], timeout: timedelta) -> bytes:
        raise Unavailable("bus.away", "nobody answers")

    async def usable(self) -> bool:
        return not self.away

    async def incarnations(self) -> Mapping[str, str]:
        return {}

    async def redeclare(self) -> tuple[str, ...]:
        return ()

    async def overruns(self) -> frozenset[str]:
        return frozenset()

    async def quiesce(self) -> None:
        """Nothing is under way."""

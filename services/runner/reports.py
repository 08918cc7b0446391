"""Reports of attempts on their way into the history, as many in a statement as have piled up."""

from collections.abc import Sequence
from typing import TypeAlias

from contracts.errors import MinutebookError
from libs.domain import attempt
from libs.eventstore.port import Load
from libs.owner import Done, Item, Owner
from libs.process.pile import Pile
from libs.telemetry import metrics

Result: TypeAlias = Done[attempt.State] | MinutebookError


class Reports:
    """Gathers single reports into batches: what comes while one is written makes the next."""

    def __init__(self, owner: Owner[attempt.State, attempt.Command]) -> None:
        self._owner = owner
        self._pile: Pile[Item[attempt.Command], Done[attempt.State]] = Pile(self.write, name="reports of attempts")

    async def report(self, item: Item[attempt.Command]) -> Result:
        """Carry one report out. A caller that is cancelled leaves it to be carried out all the same."""
        return await self._pile.put(item)

    async def flush(self) -> None:
        """Wait until every report was carried out."""
        await self._pile.flush()

    async def write(self, items: Sequence[Item[attempt.Command]], *, loaded: Load | None = None) -> Sequence[Result]:
        """Carry a batch out at once; `loaded` are their streams, where they have just been read."""
        results = await self._owner.handle(items, loaded=loaded)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Done) and result.changed:
                _count_calls(item.command)
        return results


def _count_calls(report: attempt.Command) -> None:
    match report:
        case attempt.Succeed(model=str(model), turns=calls):
            metrics.MODEL_CALLS.labels(model, "succeeded").inc(calls)
        case attempt.Fail(model=str(model), turns=calls, failure_class=failure_class):
            metrics.MODEL_CALLS.labels(model, failure_class).inc(calls)

"""What an attempt spends: priced before each model call by its worst case, settled after it by what was used."""

from typing import Final

from contracts.base import Microdollars
from contracts.events.attempt import Usage
from libs.pricing import PriceTable
from libs.pricing.table import TOKENS_PER_PRICE

ANSWER_TOKENS_MIN: Final = 1_024
"""A call is not worth making when the budget leaves fewer tokens for its answer."""

OVERHEAD_TOKENS: Final = 1_500
"""What the provider adds to a prompt by itself, for structured output above all."""


class Meter:
    """Spend of one attempt. Its budget holds before each call: the worst case must fit into what is left."""

    def __init__(self, prices: PriceTable, model: str, budget: Microdollars | None) -> None:
        self.model = model
        self.usage = Usage()
        self.cost: Microdollars = 0
        self.calls = 0
        self._price = prices.price(model)
        self._budget = budget

    @property
    def unpriced(self) -> bool:
        """Whether there is a budget that nobody could keep, since the model has no price."""
        return self._budget is not None and self._price is None

    def answer_tokens(self, prompt_bytes: int, wanted: int) -> int | None:
        """How many tokens the next call may answer with: `wanted`, or what the budget leaves; None for no call.

        No token is shorter than a byte, so the prompt's bytes bound its tokens.
        """
        if self._budget is None or self._price is None:
            return wanted
        prompt_tokens = prompt_bytes + OVERHEAD_TOKENS
        price = self._price.at(prompt_tokens)
        left = (self._budget - self.cost) * TOKENS_PER_PRICE - prompt_tokens * price.input
        fits = left // price.output if price.output else wanted
        return None if fits < min(ANSWER_TOKENS_MIN, wanted) else min(fits, wanted)

    def settle(self, used: Usage) -> None:
        """Add what one call used, answered or cut."""
        self.usage = Usage(
            input_tokens=self.usage.input_tokens + used.input_tokens,
            output_tokens=self.usage.output_tokens + used.output_tokens,
            cache_read_tokens=self.usage.cache_read_tokens + used.cache_read_tokens,
            cache_write_tokens=self.usage.cache_write_tokens + used.cache_write_tokens,
        )
        self.cost += self._price.cost(used) if self._price is not None else 0

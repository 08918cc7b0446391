"""The price table: exact name first, then the longest name that is a prefix at a dash."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from contracts.base import Microdollars
from contracts.events.attempt import Usage

TOKENS_PER_PRICE: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Price:
    """Microdollars per million tokens. `cache_write` is the price of an entry that lives five minutes.

    `long` is what a call costs whose prompt, cached tokens included, has more than `long_after_tokens`.
    """

    input: int
    output: int
    cache_read: int
    cache_write: int
    long_after_tokens: int | None = None
    long: "Price | None" = None

    def at(self, prompt_tokens: int) -> "Price":
        """The price of a call with a prompt of this length."""
        if self.long is None or self.long_after_tokens is None or prompt_tokens <= self.long_after_tokens:
            return self
        return self.long

    def cost(self, usage: Usage) -> Microdollars:
        """What one call cost, rounded up to a whole microdollar."""
        price = self.at(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)
        parts = (
            usage.input_tokens * price.input
            + usage.output_tokens * price.output
            + usage.cache_read_tokens * price.cache_read
            + usage.cache_write_tokens * price.cache_write
        )
        return -(-parts // TOKENS_PER_PRICE)


def _price(input_: float, output: float, *, read: float) -> Price:
    """A price from the provider's page, in US dollars per million tokens. A cache write costs 1.25 inputs."""
    return Price(
        input=round(input_ * 1_000_000),
        output=round(output * 1_000_000),
        cache_read=round(read * 1_000_000),
        cache_write=round(input_ * 1_250_000),
    )


def _haiku_5_5() -> Price:
    short, long = _price(0.10, 0.50, read=0.01), _price(0.50, 2.50, read=0.05)
    return Price(short.input, short.output, short.cache_read, short.cache_write, long_after_tokens=100_000, long=long)


DEFAULTS: Final[Mapping[str, Price]] = {
    "claude-fable-5-1": _price(10, 50, read=0.25),
    "claude-mythos-5-1": _price(10, 50, read=0.25),
    "claude-fable-5": _price(10, 50, read=1),
    "claude-mythos-5": _price(10, 50, read=1),
    "claude-opus-5-5": _price(4, 20, read=0.20),
    "claude-opus-5": _price(5, 25, read=0.50),
    "claude-opus-4-8": _price(5, 25, read=0.50),
    "claude-opus-4-7": _price(5, 25, read=0.50),
    "claude-opus-4-6": _price(5, 25, read=0.50),
    "claude-opus-4-5": _price(5, 25, read=0.50),
    "claude-opus-4-1": _price(15, 75, read=1.50),
    "claude-opus-4": _price(15, 75, read=1.50),
    "claude-sonnet-5-5": _price(2, 10, read=0.10),
    "claude-sonnet-5": _price(2, 10, read=0.20),
    "claude-sonnet-4-6": _price(3, 15, read=0.30),
    "claude-sonnet-4-5": _price(3, 15, read=0.30),
    "claude-sonnet-4": _price(3, 15, read=0.30),
    "claude-haiku-5-5": _haiku_5_5(),
    "claude-haiku-4-5": _price(1, 5, read=0.10),
}
"""Anthropic's list prices as of November 2026, platform.claude.com/docs/en/about-claude/pricing."""


class PriceTable:
    """Prices by model; `overrides` come before the defaults, name by name."""

    def __init__(self, overrides: Mapping[str, Price] | None = None) -> None:
        self._prices = {**DEFAULTS, **(overrides or {})}

    def price(self, model: str) -> Price | None:
        """The model's price: its exact name, else the longest `<prefix>-...`; None when it has none.

        A prefix ends at a dash, so `claude-opus-4` prices `claude-opus-4-20250514` and never `claude-opus-40`.
        """
        name = model
        while name:
            if name in self._prices:
                return self._prices[name]
            name, _, _ = name.rpartition("-")
        return None

    def cost(self, model: str, usage: Usage) -> Microdollars | None:
        """What one call with this usage cost; None when the model has no price."""
        price = self.price(model)
        return None if price is None else price.cost(usage)

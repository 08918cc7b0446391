"""Prices: exact name, longest prefix, whole microdollars."""

import pytest

from contracts.events.attempt import Usage
from libs.pricing import Price, PriceTable

MILLION = 1_000_000


@pytest.mark.parametrize(
    "model, dollars",
    [
        ("claude-sonnet-4-5", 3),
        ("claude-sonnet-4-5-20250929", 3),
        ("claude-sonnet-5", 2),
        ("claude-opus-4-20250514", 15),
        ("claude-opus-4-5-20251101", 5),
        ("claude-opus-5-5", 4),
        ("claude-haiku-4-5-20251001", 1),
    ],
)
def test_the_longest_name_that_fits_gives_the_price(model: str, dollars: int) -> None:
    assert PriceTable().cost(model, Usage(input_tokens=MILLION)) == dollars * MILLION


@pytest.mark.parametrize("model", ["", "gpt-6", "claude", "claude-opus-40", "my-claude-sonnet-4-5", "claude-sonnet"])
def test_a_model_that_nothing_names_has_no_price(model: str) -> None:
    assert PriceTable().price(model) is None
    assert PriceTable().cost(model, Usage(input_tokens=1)) is None


def test_each_kind_of_token_has_its_own_price() -> None:
    usage = Usage(input_tokens=1_000, output_tokens=200, cache_read_tokens=10_000, cache_write_tokens=4_000)

    assert PriceTable().cost("claude-sonnet-4-5", usage) == 3_000 + 3_000 + 3_000 + 15_000


def test_a_fraction_of_a_microdollar_counts_as_a_whole_one() -> None:
    table = PriceTable({"cheap": Price(input=1, output=1, cache_read=0, cache_write=0)})

    assert table.cost("cheap", Usage()) == 0
    assert table.cost("cheap", Usage(input_tokens=1, output_tokens=1)) == 1


def test_overrides_come_before_the_defaults() -> None:
    table = PriceTable({"claude-sonnet-4-5": Price(input=1, output=1, cache_read=1, cache_write=1)})

    assert table.cost("claude-sonnet-4-5-20250929", Usage(input_tokens=MILLION)) == 1
    assert table.cost("claude-opus-4-5", Usage(input_tokens=MILLION)) == 5 * MILLION


def test_a_long_prompt_may_cost_more_cached_tokens_included() -> None:
    table = PriceTable()

    assert table.cost("claude-haiku-5-5", Usage(input_tokens=100_000, output_tokens=1_000)) == 10_500
    assert table.cost("claude-haiku-5-5", Usage(input_tokens=90_000, cache_read_tokens=20_000)) == 45_000 + 1_000

"""What model calls cost: integer microdollars, by the provider's published prices or by overrides."""

from libs.pricing.table import Price, PriceTable

__all__ = ["Price", "PriceTable"]

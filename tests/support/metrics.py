"""What a test reads of this process's metrics. They are the whole process's, so tests look at differences."""

from libs.telemetry.metrics import REGISTRY


def value(name: str, **labels: str) -> float:
    """A sample's value now; 0 while nobody has touched it."""
    return REGISTRY.get_sample_value(name, labels) or 0.0

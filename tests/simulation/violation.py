"""What ends a simulation."""


class Violation(AssertionError):
    """A promise was broken."""

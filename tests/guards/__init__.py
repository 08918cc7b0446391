"""Each guard of the design, and the test that fails without it.

`guards` lists them, `python -m tests.guards` takes each away in a copy of the sources and runs its tests there.
"""

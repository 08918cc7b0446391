"""Time inside a process: for how long something took, never for what time it is. That is the database's to say."""

import asyncio


def monotonic() -> float:
    """Return the running loop's clock in seconds: the system's monotonic one, or a simulation's own.

    It goes on while the process is frozen.
    """
    return asyncio.get_running_loop().time()

"""How a stack can be started, told apart from what starts it: this much costs nothing to import."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

DEFINITIONS: Final = Path(__file__).parents[2] / "definitions"
"""The definitions that are shipped with the product."""

PORT_DEFAULT: Final = 8080


@dataclass(frozen=True, slots=True)
class Options:
    """How to start a stack. `definitions` is synced at every start; `port` 0 takes a free one.

    Without `keep`, what it stored goes when it stops. `live` asks the provider's models with ANTHROPIC_API_KEY.
    `processes` runs each service as a process of its own, and starts it again when it ends.
    """

    data_dir: Path
    port: int = PORT_DEFAULT
    reset: bool = False
    definitions: Path = DEFINITIONS
    keep: bool = True
    live: bool = False
    processes: bool = False

"""The program that a YAML definition is: steps in reading order, pinned by hash.

`planning` goes from step to step; `turns` holds what every step's turn has in common; each kind of step has a file.
"""

from libs.domain.run.programs.definition.admissions import holds_key, key_of, request
from libs.domain.run.programs.definition.items import ITEMS_MAX
from libs.domain.run.programs.definition.planning import advance, give_back

__all__ = ["ITEMS_MAX", "advance", "give_back", "holds_key", "key_of", "request"]

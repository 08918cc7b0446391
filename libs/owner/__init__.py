"""The shell round the pure heart: an owner loads, decides, appends and publishes, in batches.

Each service uses one `Owner` per category that it alone may append to.
"""

from libs.owner.items import Done, Item, Result
from libs.owner.owner import Owner
from libs.owner.publisher import Publisher

__all__ = ["Done", "Item", "Owner", "Publisher", "Result"]

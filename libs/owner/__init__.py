"""The shell round the pure heart: an owner loads, decides, appends and publishes, in batches.

Each service uses one `Owner` per category that it alone may append to.
"""

from libs.owner.owner import Done, Item, Owner, Result
from libs.owner.publisher import Publisher

__all__ = ["Done", "Item", "Owner", "Publisher", "Result"]

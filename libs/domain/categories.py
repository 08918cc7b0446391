"""Every category, by name: for births across owners, for views, `verify` and `rebuild`."""

from collections.abc import Mapping
from typing import Any, Final

from libs.domain import admission, attempt, decision, definition, effect, identity, inbound, notice, run, schedule, wait
from libs.domain.core import Category

CATEGORIES: Final[Mapping[str, Category[Any]]] = {
    category.name: category
    for category in (
        admission.CATEGORY,
        attempt.CATEGORY,
        decision.CATEGORY,
        definition.CATEGORY,
        effect.CATEGORY,
        identity.CATEGORY,
        inbound.CATEGORY,
        notice.CATEGORY,
        run.CATEGORY,
        schedule.CATEGORY,
        wait.CATEGORY,
    )
}

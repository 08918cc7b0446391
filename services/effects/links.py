"""Back-links: what is told to a target about the run that a record was written by."""

from uuid import UUID

from contracts import ids
from contracts.base import JsonObject, JsonValue
from contracts.errors import Rejected
from contracts.events.definition import ToolDeclaration
from libs.canonical import blob
from libs.domain.effect import BackLink, State
from libs.language.interpolation import fill
from libs.telemetry.logs import get_logger

_log = get_logger("effects.links")


def scope_of(effect: State, arguments: JsonObject) -> JsonObject:
    """What the templates of a probe may say; those of a back-link may say more."""
    return {"args": arguments, "key": effect.key, "run_id": str(effect.run_id)}


def back_link(
    effect_id: UUID,
    effect: State,
    *,
    tool: ToolDeclaration,
    arguments: JsonObject,
    reference: str | None,
    response: JsonValue,
    run_url: str,
) -> tuple[BackLink | None, dict[str, bytes]]:
    """The back-link that a write which stands is to have, with its arguments by digest; None where none is declared.

    One whose templates need what the target did not say is left out: the write stands all the same.
    """
    declared = tool.back_link
    if declared is None or effect.kind == "back_link":
        return None, {}
    scope = {**scope_of(effect, arguments), "reference": reference, "response": response, "run_url": run_url}
    try:
        filled = fill(declared.args, scope)
    except Rejected as error:
        _log.warning("back-link left out", effect_id=str(effect_id), tool=declared.tool, reason=error.message)
        return None, {}
    ref, content = blob(filled)
    link = BackLink(effect_id=ids.back_link(effect_id), tool=declared.tool, arguments=ref)
    return link, {ref.digest: content}

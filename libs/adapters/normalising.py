"""The one way into the adapters."""

from collections.abc import Callable, Mapping
from typing import Final

from contracts.base import JsonObject, JsonValue
from contracts.errors import Malformed, Rejected
from libs.adapters import generic, github, jira, salesforce
from libs.adapters.normalised import Normalised

_ADAPTERS: Final[Mapping[str, Callable[[JsonObject, Mapping[str, str]], Normalised]]] = {
    "generic": generic.normalise,
    "github": github.normalise,
    "jira": jira.normalise,
    "salesforce": salesforce.normalise,
}


def normalise(adapter: str, body: JsonValue, headers: Mapping[str, str]) -> Normalised:
    """Read one delivery. `headers` are found by name in any case.

    Raises:
        contracts.errors.Malformed: ``inbound.not_an_object``, the body is no JSON object.
        contracts.errors.Rejected: 422; ``inbound.incomplete`` names what is missing, ``inbound.event`` an event that
            the adapter does not know, ``inbound.adapter`` an adapter that does not exist.
    """
    if adapter not in _ADAPTERS:
        raise Rejected("inbound.adapter", f"no adapter `{adapter[:80]}`; there are {', '.join(sorted(_ADAPTERS))}")
    if not isinstance(body, dict):
        raise Malformed("inbound.not_an_object", "the body of an event must be a JSON object")
    return _ADAPTERS[adapter](body, headers)

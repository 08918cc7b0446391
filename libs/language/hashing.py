"""Content hashes: the version of what was declared."""

import hashlib
from collections.abc import Mapping

from contracts.base import JsonObject, JsonValue, Sha256
from libs.canonical import canonical


def content_hash(values: JsonValue, *, prompts: Mapping[str, str], schemas: Mapping[str, JsonObject]) -> Sha256:
    """The hash of a workflow: of the YAML's values, the prompts' text and the schemas' values, in canonical form.

    So comments, the order of keys, a byte order mark and the way lines end do not change it, and one byte of a
    prompt does. Prompts come normalised (`reader.normalise`).
    """
    return _sha256({"workflow": values, "prompts": dict(prompts), "schemas": dict(schemas)})


def value_hash(values: JsonValue) -> Sha256:
    """The hash of a source, a server or a channel: of the YAML's values in canonical form."""
    return _sha256(values)


def _sha256(value: object) -> Sha256:
    return hashlib.sha256(canonical(value)).hexdigest()

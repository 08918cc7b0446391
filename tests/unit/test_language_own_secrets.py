"""No definition names a secret of the installation itself: who may declare a server is not to be sent its keys."""

import pytest

from contracts.errors import Rejected
from libs.audit import signing
from libs.config import Settings
from libs.language.grammar import OWN_SECRETS
from libs.language.loader import load_folder
from libs.sealing import KEY_REF, PREVIOUS_REF

PLACES = {
    "sources.yaml": "sources: [{{ id: a, kind: webhook, adapter: jira, secret_ref: {name} }}]",
    "channels.yaml": (
        "channels: [{{ id: a, kind: webhook, url_ref: {name}, secret_ref: other, about: [run.failed] }}]"
    ),
    "mcp/token.yaml": "server: {{ id: token, transport: streamable_http, url_ref: u, token_ref: {name}, tools: {{}} }}",
    "mcp/url.yaml": "server: {{ id: url, transport: streamable_http, url_ref: {name}, tools: {{}} }}",
    "mcp/env.yaml": "server: {{ id: env, transport: stdio, command: [x], env: {{ A: {name} }}, tools: {{}} }}",
}


def test_they_are_those_that_the_installation_has() -> None:
    model = Settings.model_fields["anthropic_api_key_ref"].default
    assert {KEY_REF, PREVIOUS_REF, signing.KEY_REF, signing.PUBLIC_KEYS_REF, model} == OWN_SECRETS


@pytest.mark.parametrize("name", sorted(OWN_SECRETS))
@pytest.mark.parametrize("file", PLACES)
def test_a_definition_that_names_one_is_refused(file: str, name: str) -> None:
    with pytest.raises(Rejected) as refused:
        load_folder({file: PLACES[file].format(name=name)})
    said = [item.message for item in refused.value.errors if "secret of the installation itself" in item.message]
    assert said == [f"`{name}` is a secret of the installation itself; name another one"], refused.value.errors


def test_a_name_that_only_begins_so_is_fine() -> None:
    load_folder({"mcp/token.yaml": PLACES["mcp/token.yaml"].format(name="sealing_key_of_mine")})

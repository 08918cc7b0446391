"""What must hold between the parts of a server's declaration."""

from collections.abc import Mapping
from typing import Final

from libs.language import nodes
from libs.language.interpolation import placeholders
from libs.language.scalars import PATH
from libs.language.shapes import Checked
from libs.language.templates import check_back_link, check_probe

_OF_HTTP: Final = ("url_ref", "token_ref")
_OF_STDIO: Final = ("command", "env", "grant_env")


def check_server(server: Checked) -> None:
    """Note every broken rule of a server."""
    _check_transport(server)
    tools: Mapping[str, Checked] = server.get("tools") or {}
    for name, tool in tools.items():
        if probe := tool.get("probe"):
            _check_probe(name, probe)
        if link := tool.get("back_link"):
            check_back_link(link)


def read_back(server: Checked) -> dict[str, dict[str, str]]:
    """The arguments of a write that its probe or its back-link reads: tool → argument → which of the two."""
    tools: Mapping[str, Checked] = server.get("tools") or {}
    found: dict[str, dict[str, str]] = {name: {} for name in tools}
    for name, tool in tools.items():
        for asker in ("back_link", "probe"):
            asked = tool.get(asker)
            templates = [asked.get("args"), asked.get("match")] if asked else []
            paths = (path.split(".") for _, path in placeholders(templates))
            found[name].update({path[1]: asker for path in paths if path[0] == "args" and len(path) > 1})
    return found


def _check_transport(server: Checked) -> None:
    """Each transport has keys of its own, and needs some of them."""
    transport = server.get("transport")
    if transport is None:
        return
    over_pipes = transport == "stdio"
    needed, foreign = ("command", _OF_HTTP) if over_pipes else ("url_ref", _OF_STDIO)
    if needed not in server.given:
        meant = "the command that starts it, as a list" if over_pipes else "the secret that holds its address"
        server.refuse(needed, f"required and missing: with `transport: {transport}` it is {meant}")
    for key in foreign:
        if key in server.given:
            server.refuse(key, f"means nothing with `transport: {transport}`; remove it")
    grants = server.get("grants")
    if over_pipes and grants == "required" and "grant_env" not in server.given:
        server.refuse("grant_env", "required with `grants: required`: the variable that hands the grant to the command")
    if grants == "none" and "grant_env" in server.given:
        server.refuse("grant_env", "means nothing with `grants: none`; remove it")


def _check_probe(tool: str, probe: Checked) -> None:
    """A probe reads, so it is another tool; and it must ask for something, or anything would be found."""
    check_probe(probe)
    if probe.get("tool") == tool:
        probe.refuse("tool", f"`{tool}` is the write itself; a probe is asked by a tool that reads")
    match = probe.get("match")
    if match is None:
        return
    if not match:
        probe.refuse("match", "must not be empty, or whatever the target shows would be the write")
    place = probe.at("match")
    for key in match:
        if not PATH.fullmatch(key) and isinstance(place.node, nodes.Mapping):
            child = place.child(key, place.node.entries[key], place.node.lines[key])
            child.refuse(f"not a dotted path: it must match {PATH.pattern}")

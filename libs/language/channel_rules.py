"""What must hold between the keys of a channel, and between channels."""

from collections.abc import Mapping
from typing import Final

from libs.language.shapes import Checked

_NEEDS: Final[Mapping[str, Mapping[str, str]]] = {
    "webhook": {"secret_ref": "the name of the secret that signs what is sent"},
    "email": {"sender": "the address that e-mail comes from"},
    "slack": {},
    "teams": {},
}
_TAKES: Final[Mapping[str, frozenset[str]]] = {
    "webhook": frozenset({"secret_ref"}),
    "email": frozenset({"sender", "to", "holders"}),
    "slack": frozenset(),
    "teams": frozenset(),
}
_BY_KIND: Final = frozenset().union(*_TAKES.values())


def check_channels(channels: tuple[Checked, ...]) -> None:
    """Note every broken rule of the channels of a file."""
    seen: set[str] = set()
    for channel in channels:
        id_ = channel.get("id")
        if id_ in seen:
            channel.refuse("id", f"`{id_}` is declared already; each channel needs its own id")
        seen.add(id_)
        _check_kind(channel)
        _check_who(channel)
        _check_about(channel)


def _check_kind(channel: Checked) -> None:
    kind = channel.get("kind")
    if kind is None:
        return
    for key, what in _NEEDS[kind].items():
        if key not in channel.given:
            channel.refuse(key, f"required for {kind}: {what}")
    for key in sorted((channel.given & _BY_KIND) - _TAKES[kind]):
        owners = " or ".join(sorted(name for name, keys in _TAKES.items() if key in keys))
        channel.refuse(key, f"means nothing for {kind}, only for {owners}; remove it")


def _check_who(channel: Checked) -> None:
    """An e-mail goes to somebody, whatever it is about."""
    if channel.get("kind") != "email" or "to" in channel.given:
        return
    if not channel.get("holders"):
        channel.refuse("to", "required: addresses, or `holders: true` for those who may answer a decision")
        return
    for about in channel.get("about") or ():
        if not _is_of_decision(about):
            channel.refuse("to", f"required for {about}, which has no holders; or take it out of `about`")
            return


def _check_about(channel: Checked) -> None:
    listed = channel.get("about") or ()
    for twice in sorted({one for one in listed if listed.count(one) > 1}):
        channel.refuse("about", f"`{twice}` is listed twice")
    if not listed or any(_is_of_decision(about) for about in listed):
        return
    for key in sorted(channel.given & {"roles", "holders"}):
        channel.refuse(key, "narrows decisions, and `about` names none of them; remove it")


def _is_of_decision(about: str) -> bool:
    return about.startswith("decision.")

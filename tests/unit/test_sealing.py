"""What is sealed opens only with its key, for what it belongs to, and as it was."""

import base64

import pytest

from contracts.errors import Broken, Unavailable
from libs.config import Secrets
from libs.sealing import KEY_REF, PREVIOUS_REF, Sealing, new_key

OLD, NEW = new_key(), new_key()


def with_keys(**keys: str) -> Sealing:
    return Sealing(Secrets(overrides=keys))


def test_what_was_sealed_opens_and_says_nothing_by_itself() -> None:
    sealing = with_keys(sealing_key=NEW)
    sealed = sealing.seal(b"a token", about="grant 1")
    assert sealing.open(sealed, about="grant 1") == b"a token"
    assert b"a token" not in sealed
    assert sealing.seal(b"a token", about="grant 1") != sealed


@pytest.mark.parametrize("plain", [b"", b"\0", b"x" * 100_000])
def test_any_bytes_can_be_sealed(plain: bytes) -> None:
    sealing = with_keys(sealing_key=NEW)
    assert sealing.open(sealing.seal(plain, about="a"), about="a") == plain


def test_bytes_that_belong_to_something_else_do_not_open() -> None:
    sealing = with_keys(sealing_key=NEW)
    with pytest.raises(Broken, match=r"sealing\.broken"):
        sealing.open(sealing.seal(b"a token", about="grant 1"), about="grant 2")


def test_no_octet_can_be_changed_or_cut() -> None:
    sealing = with_keys(sealing_key=NEW)
    sealed = sealing.seal(b"token", about="a")
    for place in range(len(sealed)):
        changed = sealed[:place] + bytes([sealed[place] ^ 1]) + sealed[place + 1 :]
        with pytest.raises((Broken, Unavailable)):
            sealing.open(changed, about="a")
        with pytest.raises(Broken):
            sealing.open(sealed[:place], about="a")


def test_a_rotated_key_still_opens_as_the_previous_one() -> None:
    sealed = with_keys(sealing_key=OLD).seal(b"a token", about="a")
    rotated = with_keys(sealing_key=NEW, sealing_key_previous=OLD)
    assert rotated.open(sealed, about="a") == b"a token"
    assert not rotated.current(sealed)
    assert rotated.current(rotated.seal(b"a token", about="a"))
    with pytest.raises(Unavailable, match=r"sealing\.key_missing.*sealing_key_previous"):
        with_keys(sealing_key=NEW).open(sealed, about="a")


def test_without_a_key_it_says_how_to_make_one() -> None:
    assert not with_keys().ready()
    with pytest.raises(Unavailable, match=r"sealing\.no_key.*minutebook provision --sealing-key"):
        with_keys().seal(b"", about="a")


@pytest.mark.parametrize("ref", [KEY_REF, PREVIOUS_REF])
@pytest.mark.parametrize("text", ["=", "short", "not base64 !" * 4, base64.b64encode(b"x" * 31).decode()])
def test_a_secret_that_is_no_key_is_named_and_not_shown(ref: str, text: str) -> None:
    with pytest.raises(Unavailable) as refused:
        with_keys(**{KEY_REF: NEW, ref: text}).ready()
    assert refused.value.code == "sealing.key_malformed"
    assert refused.value.message == f"the secret {ref} is not base64 of 32 bytes"


def test_both_alphabets_of_base64_are_the_same_key() -> None:
    key = b"\xfb\xff" * 16
    sealed = with_keys(sealing_key=base64.b64encode(key).decode()).seal(b"a", about="a")
    urlsafe = base64.urlsafe_b64encode(key).decode().rstrip("=")
    assert with_keys(sealing_key=f"{urlsafe}\n").open(sealed, about="a") == b"a"

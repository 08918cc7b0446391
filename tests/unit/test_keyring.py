"""Personal texts as tokens: the same again, opened by their key alone, erased with it."""

from uuid import UUID, uuid4

import pytest

from libs.eventstore.keyring import KEY_BYTES, MARK, Keyring, persons_in, token_mark

DANA, PRIYA = UUID(int=1), UUID(int=2)
TEXTS = ["dana@example.com", "", "Ærø, \x00 and \U0001f600", "$sealed:not really", "x" * 20_000]


@pytest.fixture
def ring() -> Keyring:
    ring = Keyring()
    ring.learn(DANA.hex, bytes(range(KEY_BYTES)))
    ring.learn(PRIYA.hex, bytes(KEY_BYTES - 1) + b"2")
    return ring


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_comes_back(ring: Keyring, text: str) -> None:
    token = ring.seal(DANA, text, "[erased]")
    assert token.startswith(token_mark(DANA))
    assert text == "" or text not in token
    assert ring.open(None, token, "[erased]") == text
    assert persons_in(f'{{"a":"{token}","b":"{ring.seal(PRIYA, text, "")}"}}') == [DANA.hex, PRIYA.hex]


def test_the_same_text_is_the_same_token_of_one_person_only(ring: Keyring) -> None:
    again = Keyring()
    again.learn(DANA.hex, bytes(range(KEY_BYTES)))
    assert again.seal(DANA, "a", "") == ring.seal(DANA, "a", "") != ring.seal(PRIYA, "a", "")


def test_nobodys_text_and_what_only_looks_like_a_token_stay(ring: Keyring) -> None:
    assert ring.seal(None, "scheduler", "[erased]") == "scheduler"
    token = ring.seal(DANA, "dana@example.com", "")
    forged = [token[:-1], token[:-2] + "AA", token.replace(DANA.hex, PRIYA.hex), f"{MARK}{uuid4().hex}:{'A' * 30}"]
    assert [ring.open(None, text, "[erased]") for text in forged] == forged


def test_a_destroyed_key_erases_what_was_and_what_is_to_come(ring: Keyring) -> None:
    token, other = ring.seal(DANA, "dana@example.com", "erased@invalid"), ring.seal(PRIYA, "priya", "[erased]")
    assert ring.open(None, token, "erased@invalid") == "dana@example.com"
    ring.learn(DANA.hex, None)
    ring.learn(DANA.hex, None)
    assert ring.erasures == 1
    assert ring.open(None, token, "erased@invalid") == "erased@invalid"
    assert ring.seal(DANA, "dana@example.com", "[erased]") == "[erased]"
    assert ring.open(None, other, "[erased]") == "priya"

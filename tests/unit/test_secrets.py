"""Where secrets are found, and that what goes wrong with one does not say what it is."""

import os
import traceback
from pathlib import Path

import pytest

from contracts.errors import Unavailable
from libs.config import Secrets
from libs.config.secrets import BYTES_MAX, variable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def test_the_environment_comes_first_then_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "tracker_token").write_text("from the file")
    secrets = Secrets(folder)
    assert secrets.get("tracker_token") == "from the file"
    monkeypatch.setenv("MINUTEBOOK_SECRET_TRACKER_TOKEN", "from the environment")
    assert secrets.get("tracker_token") == "from the environment"
    monkeypatch.setenv("MINUTEBOOK_SECRET_TRACKER_TOKEN", "")
    assert secrets.get("tracker_token") == "from the file"
    assert Secrets(folder, {"tracker_token": "given"}).get("tracker_token") == "given"


@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_line_ends_behind_a_value_are_not_part_of_it(folder: Path, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "a").write_bytes(f"  two words {end}".encode())
    monkeypatch.setenv("MINUTEBOOK_SECRET_B", f"value{end}")
    assert Secrets(folder).get("a") == "  two words "
    assert Secrets(folder).get("b") == "value"


def test_an_empty_file_is_none_so_one_that_is_being_written_is_asked_for_again(folder: Path) -> None:
    (folder / "a").write_text("\n")
    assert Secrets(folder).get("a") is None
    with pytest.raises(Unavailable, match=r"secret\.missing.*MINUTEBOOK_SECRET_A.*'a'.*MINUTEBOOK_SECRETS_DIR"):
        Secrets(folder).require("a")


def test_a_kubernetes_mount_is_read_through_its_links_and_swapped_at_once(folder: Path) -> None:
    for version, value in (("..2026_11_29", "first"), ("..2026_11_30", "second")):
        (folder / version).mkdir()
        (folder / version / "token").write_text(value)
    (folder / "..data").symlink_to("..2026_11_29")
    (folder / "token").symlink_to("..data/token")
    secrets = Secrets(folder)
    assert secrets.get("token") == "first"
    (folder / "..data_tmp").symlink_to("..2026_11_30")
    (folder / "..data_tmp").rename(folder / "..data")
    assert secrets.get("token") == "second"
    (folder / "..data").unlink()
    assert secrets.get("token") is None


@pytest.mark.parametrize("ref", ["", ".", "..", "../outside", "a/b", "..data", "a\0b", "ä", "x" * 300])
def test_no_name_leads_out_of_the_folder(folder: Path, ref: str) -> None:
    (folder.parent / "outside").write_text("not yours")
    (folder / "..data").mkdir()
    assert Secrets(folder).get(ref) is None


def test_a_folder_or_nothing_in_its_place_is_no_secret(folder: Path) -> None:
    (folder / "a").mkdir()
    assert Secrets(folder).get("a") is None
    assert Secrets(folder / "nowhere").get("a") is None
    (folder / "file").write_text("x")
    assert Secrets(folder / "file").get("a") is None
    assert Secrets().get("a") is None


def test_what_cannot_be_read_is_named_and_not_quoted(folder: Path) -> None:
    (folder / "binary").write_bytes(b"s3cret\xff\xfe")
    (folder / "large").write_text("s3cret" * BYTES_MAX)
    (folder / "loop").symlink_to("loop")
    for ref, says in (("binary", "not UTF-8 text"), ("large", "larger than"), ("loop", "cannot be read")):
        with pytest.raises(Unavailable) as refused:
            Secrets(folder).get(ref)
        assert refused.value.code == "secret.unreadable"
        assert says in refused.value.message
        assert str(folder / ref) in refused.value.message
        assert "s3cret" not in "".join(traceback.format_exception(refused.value))


@pytest.mark.skipif(os.geteuid() == 0, reason="everything is readable for root")
def test_a_file_of_somebody_else_is_named(folder: Path) -> None:
    (folder / "a").write_text("s3cret")
    (folder / "a").chmod(0)
    with pytest.raises(Unavailable, match=r"secret\.unreadable.*Permission denied"):
        Secrets(folder).get("a")


def test_two_overlap_while_one_is_rotated(folder: Path) -> None:
    (folder / "hook").write_text("new")
    assert Secrets(folder).overlapping("hook") == ("new",)
    (folder / "hook_previous").write_text("old")
    assert Secrets(folder).overlapping("hook") == ("new", "old")
    (folder / "hook").unlink()
    with pytest.raises(Unavailable, match=r"secret\.missing"):
        Secrets(folder).overlapping("hook")


def test_nothing_that_holds_secrets_shows_them() -> None:
    assert "s3cret" not in repr(Secrets(overrides={"a": "s3cret"}))


@pytest.mark.parametrize("ref, name", [("a", "A"), ("tracker-token", "TRACKER_TOKEN"), ("a.b", "A_B")])
def test_a_name_has_one_variable(ref: str, name: str) -> None:
    assert variable(ref) == f"MINUTEBOOK_SECRET_{name}"

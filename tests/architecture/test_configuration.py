"""docs/configuration.md is what `minutebook serve --settings` prints, and the settings are told as people read them."""

import re
from collections.abc import Mapping
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from contracts.errors import Rejected
from libs.config import Settings
from libs.config.settings import unknown, variable
from minutebook.cli.main import COMMANDS, build
from services.host.reference import as_help, as_markdown, rows
from tests.support.compose import SET

ROOT = Path(__file__).parents[2]
ADDRESSES = {"MINUTEBOOK_POSTGRES_DSN": "postgresql://u@h/d", "MINUTEBOOK_NATS_URL": "nats://a:4222,nats://b:4222"}


def read(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> Settings:
    """Read the settings from these variables and no others."""
    nothing = {variable(field): "" for field in Settings.model_fields}
    for name, value in {**nothing, **environment}.items():
        monkeypatch.setenv(name, value)
    return Settings.read()


def test_the_page_is_what_the_command_prints() -> None:
    assert (ROOT / "docs/configuration.md").read_text() == as_markdown(), "write it: minutebook serve --settings"


def test_operations_names_what_there_is() -> None:
    page = (ROOT / "docs/operations.md").read_text()
    settings = {variable(name) for name in Settings.model_fields}
    others = {*SET, "MINUTEBOOK_API_KEY", "MINUTEBOOK_SERVER_ADDRESS"}
    assert set(re.findall(r"MINUTEBOOK_[A-Z_]+", page)) <= settings | others
    documented = set(re.findall(r"`(?:minutebook|workflow)_[a-z_]+(?=[`{])", page))
    known = set(re.findall(r"`(?:minutebook|workflow)_[a-z_]+(?=`)", (ROOT / "docs/telemetry.md").read_text()))
    assert documented <= known
    offered = {point.name.partition(".")[0] for point in entry_points(group=COMMANDS)}
    groups = {str(group.name) for group in build().registered_groups}
    assert set(re.findall(r"`minutebook ([a-z]+)", page)) <= offered | groups


def test_every_setting_has_a_name_a_default_and_a_meaning() -> None:
    listed = {row.variable: row for row in rows()}
    assert set(listed) == {variable(name) for name in Settings.model_fields}
    assert [row.variable for row in listed.values() if row.required] == list(ADDRESSES)
    for row in listed.values():
        assert row.meaning
        assert row.variable in as_help()
    assert listed["MINUTEBOOK_LOG_LEVEL"].meaning == "the least that is logged (debug, info, warning, error)"
    assert listed["MINUTEBOOK_RUNNER_SLOTS"].default == "4"
    assert listed["MINUTEBOOK_SECRETS_DIR"].default == ""


def test_units_end_the_names_of_measures() -> None:
    """A number without a unit is a count, a port or a limit of a count."""
    for name, field in Settings.model_fields.items():
        if field.annotation is float:
            assert name.endswith("_seconds"), name


def test_an_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read(monkeypatch, {**ADDRESSES, "MINUTEBOOK_RUNNER_SLOTS": "7"})
    assert (settings.runner_slots, settings.nats_url) == (7, ADDRESSES["MINUTEBOOK_NATS_URL"])
    assert settings.secrets_dir is None, "an empty value counts as none"


def test_everything_that_is_wrong_is_said_at_once_and_no_value_is(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "MINUTEBOOK_POSTGRES_DSN": "u:s3cret@h/d",
        "MINUTEBOOK_HTTP_PORT": "s3cret",
        "MINUTEBOOK_DRAIN_SECONDS": "-1",
        "MINUTEBOOK_LOG_LEVEL": "s3cret",
    }
    with pytest.raises(Rejected) as refused:
        read(monkeypatch, wrong)
    assert [item.path for item in refused.value.errors] == sorted([*wrong, "MINUTEBOOK_NATS_URL"])
    assert refused.value.__cause__ is None
    assert "s3cret" not in str(refused.value)


def test_what_holds_passwords_is_in_no_representation() -> None:
    settings = Settings(postgres_dsn="postgresql://u:s3cret@h/d", nats_url="nats://s3cret@h")
    assert "s3cret" not in f"{settings!r} {settings}"


def test_what_looks_like_a_setting_and_is_none() -> None:
    environment = {
        "MINUTEBOOK_RUNNER_SLOT": "1",
        "MINUTEBOOK_RUNNER_SLOTS": "1",
        "MINUTEBOOK_SECRET_X": "1",
        "MINUTEBOOK_API_KEY": "1",
        "MINUTEBOOK_SERVER_ADDRESS": "1",
        "PATH": "1",
    }
    assert unknown(environment) == ("MINUTEBOOK_RUNNER_SLOT",)

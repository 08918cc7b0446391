"""What can be set from outside, with units in the names. Read once, at start, from `MINUTEBOOK_<NAME>`."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.errors import Rejected
from minutebook.models.problem import ProblemItem

PREFIX: Final = "MINUTEBOOK_"
_NOT_SETTINGS: Final = ("SECRET_", "API_KEY", "SERVER_ADDRESS", "WORKER_ADDRESS", "FAULTPOINT")
"""What else begins with the prefix: secrets, what the command line and workers read, what tests set."""

_SCHEMES: Final = {
    "postgres_dsn": ("postgresql", "postgres"),
    "nats_url": ("nats", "tls", "ws", "wss"),
    "public_url": ("https", "http"),
}


class Settings(BaseSettings):
    """Settings of every service. Addresses may hold passwords, so no representation shows them."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)

    postgres_dsn: str = Field(
        repr=False,
        description="where the history is, for example postgresql://user@host:5432/minutebook; whoever it logs in as, "
        "services act as the role `minutebook_app`",
    )
    nats_url: str = Field(
        repr=False, description="where the bus is, for example nats://127.0.0.1:4222; several with commas between"
    )
    secrets_dir: Path | None = Field(default=None, description="folder with one file per secret, named as its ref")
    ops_host: str = Field(default="127.0.0.1", description="address of health, readiness and metrics")
    ops_port: int = Field(
        default=8081, ge=0, le=65535, description="port of health, readiness and metrics; 0 takes a free one"
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="the least that is logged"
    )
    http_host: str = Field(default="127.0.0.1", description="address that the api listens on")
    http_port: int = Field(default=8080, ge=0, le=65535, description="port that the api listens on; 0 takes a free one")
    public_url: str | None = Field(
        default=None,
        description="where people reach the api, for the links in notices and in records that were written; "
        "none: http://<MINUTEBOOK_HTTP_HOST>:<MINUTEBOOK_HTTP_PORT>",
    )
    webhook_bytes_max: int = Field(default=10 * 1024 * 1024, description="largest webhook body that is read")
    webhooks_per_second_max: int = Field(
        default=100, ge=1, description="deliveries of one source that one api takes in the long run"
    )
    webhooks_burst_max: int = Field(default=1_000, ge=1, description="deliveries of one source that may come at once")
    webhooks_refused_max: int = Field(
        default=10,
        ge=1,
        description="deliveries of one source that an api refuses in a row, as not authentic, before people are told",
    )
    request_bytes_max: int = Field(default=1024 * 1024, description="largest body of every other request")
    ask_timeout_seconds: float = Field(default=10.0, gt=0, description="how long the api waits for an owner's reply")
    runner_slots: int = Field(default=4, ge=1, description="attempts that one runner executes at a time")
    runner_lease_seconds: float = Field(default=90.0, gt=0, description="how long a claim holds without renewal")
    runner_renew_seconds: float = Field(default=30.0, gt=0, description="how often a runner renews its leases")
    runner_idle_seconds: float = Field(default=1.0, gt=0, description="how often an idle runner looks for work")
    leases_lost_max: int = Field(default=3, ge=1, description="lost leases after which an attempt fails")
    anthropic_base_url: str | None = Field(default=None, description="where the Messages API is; none: the provider's")
    anthropic_api_key_ref: str = Field(default="anthropic_api_key", description="secret that holds the model's key")
    anthropic_model: str = Field(default="claude-sonnet-5-5", description="model of agent steps that name none")
    model_calls_max: int = Field(default=8, ge=1, description="model calls of one attempt")
    model_output_tokens_max: int = Field(default=16_000, ge=1, description="tokens that one model call may answer with")
    effect_calls: int = Field(
        default=32, ge=1, description="tool calls that one effects process has under way; a kill leaves these in doubt"
    )
    effect_calls_per_server: int = Field(default=8, ge=1, description="of them, to one MCP server")
    effect_start_seconds: float = Field(
        default=5.0, gt=0, le=60, description="a call that began later after its pending fact is not made"
    )
    effect_margin_seconds: float = Field(
        default=10.0,
        gt=0,
        description="added to a call's timeout before it counts as over everywhere, and may be doubted and settled",
    )
    mcp_commands: str = Field(
        default="",
        description="commands that MCP servers over stdio may be started by, with spaces between, each as definitions "
        "write it; none: no such server is started",
    )
    notice_tries: int = Field(default=32, ge=1, description="notices that one effects process is sending at a time")
    notice_tries_per_channel: int = Field(default=4, ge=1, description="of them, on one channel")
    notice_seconds: float = Field(default=15.0, gt=0, description="how long a try to send a notice may take")
    scheduler_lease_seconds: float = Field(default=10.0, gt=0, description="how long a scheduler leads without renewal")
    scheduler_tick_seconds: float = Field(
        default=0.5, gt=0, description="how often the leading scheduler looks for due wakes"
    )
    outbox_age_seconds: float = Field(
        default=5.0, gt=0, description="age at which unpublished facts are published again"
    )
    dead_letter_tries: int = Field(
        default=20,
        ge=1,
        description="tries after which what a service cannot do with a message is kept as a dead letter; those that a "
        "database or bus that is away makes fail do not count",
    )
    seal_seconds: float = Field(
        default=300.0,
        gt=0,
        description="how often the leading scheduler seals what was written, with the secret `seal_signing_key`",
    )
    drain_seconds: float = Field(default=10.0, gt=0, description="how long a stopping service finishes what it has")

    def link(self, path: str) -> str:
        """The address of a page for people; `path` begins with a slash."""
        return (self.public_url or f"http://{self.http_host}:{self.http_port}").rstrip("/") + path

    @classmethod
    def read(cls) -> "Settings":
        """Read the environment.

        Raises:
            contracts.errors.Rejected: ``settings.invalid``, naming each setting that is missing or wrong, and no value.
        """
        items = [*_addresses(os.environ)]
        settings = None
        try:
            settings = cls()  # the environment gives the required ones
        except ValidationError as error:
            items += [ProblemItem(path=variable(str(e["loc"][0])), message=_said(e["msg"])) for e in error.errors()]
        if items or settings is None:
            items.sort(key=lambda item: item.path)
            named = "; ".join(f"{item.path}: {item.message}" for item in items)
            raise Rejected("settings.invalid", f"settings are missing or wrong: {named}", errors=tuple(items)) from None
        return settings


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def unknown(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Variables that look like settings and are none: most likely one is misspelt."""
    known = {variable(name) for name in Settings.model_fields}
    return tuple(
        sorted(
            name
            for name in environment
            if name.startswith(PREFIX) and name not in known and not name.removeprefix(PREFIX).startswith(_NOT_SETTINGS)
        )
    )


def _addresses(environment: Mapping[str, str]) -> Iterator[ProblemItem]:
    """Addresses that are not like any. Values are not quoted: they may hold passwords."""
    for name, schemes in _SCHEMES.items():
        value = environment.get(variable(name), "")
        if value and any(
            not _is_address(part, schemes) for part in (value.split(",") if name == "nats_url" else [value])
        ):
            yield ProblemItem(path=variable(name), message=f"should be an address that begins with {schemes[0]}://")


def _is_address(value: str, schemes: tuple[str, ...]) -> bool:
    try:
        return urlsplit(value.strip()).scheme in schemes
    except ValueError:
        return False


def _said(message: str) -> str:
    return "must be set" if message == "Field required" else message[:1].lower() + message[1:]

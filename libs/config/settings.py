"""What can be set from outside, with units in the names. Read once, at start, from `MINUTEBOOK_<NAME>`."""

from pathlib import Path

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from contracts.errors import Rejected
from minutebook.models.problem import ProblemItem


class Settings(BaseSettings):
    """Settings of every service."""

    model_config = SettingsConfigDict(env_prefix="MINUTEBOOK_", extra="ignore", frozen=True)

    postgres_dsn: str = Field(description="where the history is, as the role `minutebook_app`")
    nats_url: str = Field(description="where the bus is, for example nats://127.0.0.1:4222")
    secrets_dir: Path | None = Field(default=None, description="folder with one file per secret, named as its ref")
    http_host: str = Field(default="127.0.0.1", description="address that the api listens on")
    http_port: int = Field(default=8080, ge=0, le=65535, description="port that the api listens on; 0 takes a free one")
    webhook_bytes_max: int = Field(default=10 * 1024 * 1024, description="largest webhook body that is read")
    request_bytes_max: int = Field(default=1024 * 1024, description="largest body of every other request")
    ask_timeout_seconds: float = Field(default=10.0, gt=0, description="how long the api waits for an owner's reply")
    runner_slots: int = Field(default=4, ge=1, description="attempts that one runner executes at a time")
    runner_lease_seconds: float = Field(default=90.0, gt=0, description="how long a claim holds without renewal")
    runner_renew_seconds: float = Field(default=30.0, gt=0, description="how often a runner renews its leases")
    runner_idle_seconds: float = Field(default=1.0, gt=0, description="how often an idle runner looks for work")
    leases_lost_max: int = Field(default=3, ge=1, description="lost leases after which an attempt fails")
    anthropic_base_url: str | None = Field(default=None, description="Messages API; None for the provider's own")
    anthropic_api_key_ref: str = Field(default="anthropic_api_key", description="secret that holds the model's key")
    anthropic_model: str = Field(default="claude-sonnet-5-5", description="model of agent steps that name none")
    model_calls_max: int = Field(default=8, ge=1, description="model calls of one attempt")
    model_output_tokens_max: int = Field(default=16_000, ge=1, description="tokens that one model call may answer with")
    effect_start_seconds: float = Field(
        default=5.0, gt=0, description="a call that began later after its pending fact is not made"
    )
    effect_margin_seconds: float = Field(
        default=10.0, gt=0, description="added to a call's timeout before it is in doubt"
    )
    scheduler_lease_seconds: float = Field(default=10.0, gt=0, description="how long a scheduler leads without renewal")
    scheduler_tick_seconds: float = Field(
        default=0.5, gt=0, description="how often the leading scheduler looks for due wakes"
    )
    outbox_age_seconds: float = Field(
        default=5.0, gt=0, description="age at which unpublished facts are published again"
    )
    drain_seconds: float = Field(default=10.0, gt=0, description="how long a stopping service finishes what it has")

    @classmethod
    def read(cls) -> "Settings":
        """Read the environment.

        Raises:
            contracts.errors.Rejected: naming each setting that is missing or wrong.
        """
        try:
            return cls()  # the environment gives the required ones
        except ValidationError as error:
            items = tuple(
                ProblemItem(path="MINUTEBOOK_" + str(e["loc"][0]).upper(), message=e["msg"]) for e in error.errors()
            )
            named = "; ".join(f"{item.path}: {item.message}" for item in items)
            raise Rejected("settings.invalid", f"settings are missing or wrong: {named}", errors=items) from error

"""Errors as the API speaks them: RFC 9457 problems."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class ProblemItem(BaseModel):
    """One thing that is wrong, and where."""

    model_config = ConfigDict(frozen=True)

    path: str = Field(description="dotted path of the value, for example `context.jira_key`")
    message: str
    file: str | None = None
    line: int | None = Field(default=None, description="1-based line in `file`")


class Problem(BaseModel):
    """An RFC 9457 problem. `code` is stable; `detail` is for people and may change."""

    model_config = ConfigDict(frozen=True)

    type: str = "about:blank"
    title: str
    status: int
    code: str = Field(description="stable dotted name, for example `decision.answered`")
    detail: str
    errors: tuple[ProblemItem, ...] = ()
    request_id: str | None = None
    extra: dict[str, Any] = Field(default_factory=dict, description="facts of this problem, such as who and when")

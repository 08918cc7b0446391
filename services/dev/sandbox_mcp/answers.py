"""Structured results that several tools give."""

from pydantic import BaseModel


class Comment(BaseModel):
    """The structured result of a tool that comments."""

    id: str
    html_url: str

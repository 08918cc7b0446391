"""Dead letters as the API shows them."""

from uuid import UUID

from pydantic import AwareDatetime, Field

from minutebook.models.base import Shown


class DeadLetterView(Shown):
    """A message, or a part of one, that a service gave up on. Its operator has it done again once it is mended."""

    letter_id: UUID
    service: str
    durable: str = Field(description="whose messages it was one of")
    subject: str = Field(description="what it told of, such as `history.decision.answered`")
    stream_id: UUID | None = Field(description="the stream that it concerns")
    code: str = Field(description="the stable code of the error")
    message: str
    tries: int = Field(description="count of tries that failed")
    first_at: AwareDatetime
    last_at: AwareDatetime

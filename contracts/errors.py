"""The error tree. Each base has one meaning on the bus and one over HTTP.

| Error | On the bus | Over HTTP |
|---|---|---|
| Rejected | ack: the domain says no | its own status: 401, 403, 404, 409, 413, 415, 422, 429 |
| Conflict | decide again | asked again by the door; 503 once the caller's time is over |
| Unavailable | nak with backoff | 503 |
| Malformed | term, dead letter | 400 |
| Broken | term, dead letter, page | 500 |
| Stopping | nak, attempt not counted | 503 |
"""

from typing import Any

from minutebook.models.problem import Problem, ProblemItem

TITLES = {
    400: "Malformed request",
    401: "Not authenticated",
    403: "Not allowed",
    404: "Not found",
    409: "Conflict",
    413: "Too large",
    415: "Unsupported media type",
    422: "Not acceptable as sent",
    429: "Too many requests",
    500: "Internal error",
    503: "Not available now",
}


class MinutebookError(Exception):
    """Base of the tree. `code` is a stable dotted name; `message` says what, where and how to mend it."""

    status = 500
    again = False
    """Whether nothing was done, and another try a moment later is likely to be taken: the door makes it by itself."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        again: bool | None = None,
        errors: tuple[ProblemItem, ...] = (),
        **extra: Any,
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.errors = errors
        self.extra = extra
        if status is not None:
            self.status = status
        if again is not None:
            self.again = again

    def problem(self, request_id: str | None = None) -> Problem:
        """The error as the API and typed replies carry it."""
        return Problem(
            title=TITLES.get(self.status, "Error"),
            status=self.status,
            code=self.code,
            detail=self.message,
            errors=self.errors,
            request_id=request_id,
            extra=self.extra,
        )


class Rejected(MinutebookError):
    """The domain says no, and would say it again."""

    status = 422


class Conflict(MinutebookError):
    """Another writer was first. Load again and decide again.

    It says nothing of what the caller wants, so it is no 409: the same command may be taken the next time.
    """

    status = 503
    again = True


class Unavailable(MinutebookError):
    """Something that is needed does not answer now. The same message may succeed later."""

    status = 503


class Malformed(MinutebookError):
    """What came in cannot be read as what it should be."""

    status = 400


class Broken(MinutebookError):
    """A bug of ours, or a record that cannot be right."""

    status = 500


class Stopping(MinutebookError):
    """This process is draining; hand the message to another."""

    status = 503
    again = True


class Refusal(Problem):
    """A problem as it goes from an owner to who asked. Replicas of another release may neither say nor read `again`."""

    again: bool = False


def refusal(error: MinutebookError) -> Refusal:
    """The error as a typed reply carries it."""
    return Refusal(**error.problem().model_dump(), again=error.again)


def from_problem(problem: Problem) -> MinutebookError:
    """The error that a typed reply carried, as the exception that it was. Lost races are `Unavailable`, and `again`."""
    kind: type[MinutebookError]
    match problem.status:
        case 400:
            kind = Malformed
        case 500:
            kind = Broken
        case 503:
            kind = Unavailable
        case _:
            kind = Rejected
    again = isinstance(problem, Refusal) and problem.again
    return kind(
        problem.code, problem.detail, status=problem.status, again=again, errors=problem.errors, **problem.extra
    )


__all__ = [
    "TITLES",
    "Broken",
    "Conflict",
    "Malformed",
    "MinutebookError",
    "Refusal",
    "Rejected",
    "Stopping",
    "Unavailable",
    "from_problem",
    "refusal",
]

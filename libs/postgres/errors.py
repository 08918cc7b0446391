"""What asyncpg and PostgreSQL raise, in the words of our error tree."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg

from contracts.errors import Broken, Unavailable

_PASSING: Final = (
    asyncpg.PostgresConnectionError,
    asyncpg.InsufficientResourcesError,  # disk full, out of memory, too many connections
    asyncpg.OperatorInterventionError,  # shutdown, cancelled by a timeout
    asyncpg.PostgresSystemError,
    asyncpg.InvalidCatalogNameError,
    asyncpg.InvalidAuthorizationSpecificationError,
)
"""Conditions that another try, later or elsewhere, may not meet."""

_CONTENDED: Final = (
    asyncpg.TransactionRollbackError,  # deadlock, serialisation
    asyncpg.LockNotAvailableError,
)
CONTENDED: Final = "postgres.contended"
"""The code of a statement that stood in another's way, on a server that is well."""

FULL: Final = "postgres.full"
"""The code of a write that found no room, on a server that answers what needs none."""

READ_ONLY: Final = "postgres.read_only"
"""The code of a write to a server that only reads now: a standby in the middle of a failover, or one told to."""


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises into `Unavailable` or `Broken`.

    The driver's own message is not passed on, nor kept as the cause: it quotes values, and values may be secret.
    """
    try:
        yield
    except asyncpg.PostgresError as error:
        said = f"PostgreSQL answered {error.sqlstate} ({_said(error)}){_place(error)}"
        if isinstance(error, _CONTENDED):
            raise Unavailable(CONTENDED, f"{said}: try again", again=True) from None
        if isinstance(error, asyncpg.DiskFullError):
            raise Unavailable(FULL, f"{said}: give its disk more room, and try again") from None
        if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
            raise Unavailable(READ_ONLY, f"{said}: have the DSN name the primary, and try again") from None
        if isinstance(error, _PASSING):
            raise Unavailable("postgres.unavailable", f"{said}: try again") from None
        hint = "the statement or a value in it is wrong; nothing was written"
        raise Broken("postgres.refused", f"{said}: {hint}") from None
    except asyncpg.InterfaceError as error:
        # The driver's DataError is both: an argument that cannot be encoded. Any other means a lost connection.
        if isinstance(error, ValueError) or "argument" in str(error):
            raise Broken(
                "postgres.bad_argument", "a value does not fit the type of its column; nothing was written"
            ) from None
        raise Unavailable("postgres.disconnected", "the connection to PostgreSQL was closed; try again") from error
    except asyncpg.InternalClientError as error:
        # The driver trips over a connection that dies under it ("another operation is in progress"). What was sent may
        # have been carried out, as with every lost connection; called a bug, its message would be dropped for good.
        raise Unavailable(
            "postgres.driver", f"the driver gave a connection up ({type(error).__name__}); try again"
        ) from error
    except OSError as error:
        raise Unavailable(
            "postgres.unreachable",
            f"PostgreSQL does not answer ({type(error).__name__}); check that it runs and that the DSN names it",
        ) from error


def _said(error: asyncpg.PostgresError) -> str:
    """The condition. Of class 42, mistakes in the statement or a right that lacks, the message quotes no values."""
    return str(error) if (error.sqlstate or "").startswith("42") else type(error).__name__


def _place(error: asyncpg.PostgresError) -> str:
    """Where it happened, as far as PostgreSQL says so in names and not in values."""
    names = [
        f"{what} {name}"
        for what in ("table", "column", "constraint")
        if (name := getattr(error, f"{what}_name", None)) is not None
    ]
    return f" at {', '.join(names)}" if names else ""

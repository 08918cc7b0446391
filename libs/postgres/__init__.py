"""PostgreSQL as this product uses it: pools, errors in our words, migrations and the schema that they add up to.

Statements are single and autocommit, and no session state is kept between them, so a transaction pooler works.
"""

from libs.postgres.migrate import SCHEMA_VERSION, check, migrate
from libs.postgres.pool import execute, fetch, fetchrow, open_pool, transaction

__all__ = ["SCHEMA_VERSION", "check", "execute", "fetch", "fetchrow", "migrate", "open_pool", "transaction"]

"""The table that these tests ask for, and what the answer to each of its keys must be.

Keys from 1 to `ROWS` have a row, all others have none.
"""

from collections.abc import Iterator

from tests.integration.protection.asker import Answered
from tools.processes.postgres_server import Database

ROWS = 2_000
_UNANSWERED = frozenset({"error", "timeout"})


def put_customers(database: Database, *, table: str = "customers") -> None:
    """Make the table."""
    database.execute(
        f"CREATE TABLE {table} (id int8 PRIMARY KEY, name text NOT NULL)",
        f"INSERT INTO {table} SELECT id, 'customer ' || id FROM generate_series(1, {ROWS}) AS id",
        f"ANALYZE {table}",
    )


def name_of(key: int) -> str | None:
    """What the row of the key says."""
    return f"customer {key}" if 1 <= key <= ROWS else None


def lies(answered: Answered) -> Iterator[str]:
    """What the answer says that is not so; that there is no answer for a key is no lie."""
    if answered.status != 200:
        yield f"status {answered.status}: {answered.detail}"
    for key, outcome, row in zip(answered.keys, answered.outcomes, answered.rows, strict=False):
        name = row["name"] if row else None
        expected = None if outcome in _UNANSWERED else name_of(key)
        if name != expected or (outcome == "missing" and name_of(key)):
            yield f"key {key}: {outcome} {name}"

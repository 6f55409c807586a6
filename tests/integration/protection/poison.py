"""A table whose database cannot even read some of the keys that it is asked for, and such keys.

The database stores LATIN1, and keys are sent as UTF-8: that a character does not exist there is
known to the server only, which refuses the whole query (SQLSTATE 22P05).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from tools.processes.postgres_server import Database, PostgresServer

LATIN1 = "ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
ROWS = 120_000


@dataclass(frozen=True, slots=True)
class PoisonedKeys:
    """Distinct keys at random places: most with a row, some without, some that are refused."""

    keys: Sequence[str]

    @classmethod
    def of(cls, count: int, *, poisoned: int, seed: int) -> "PoisonedKeys":
        """So many, of which so many are poison."""
        chosen = random.Random(seed)  # noqa: S311
        numbers = chosen.sample(range(1, ROWS * 10 // 9), count)
        at = set(chosen.sample(range(count), poisoned))
        return cls([f"{'漢' if i in at else 'ä'} {n}" for i, n in enumerate(numbers)])

    def expected(self) -> list[str]:
        """The outcome of each key and what its row says, in words."""
        return [_expected(key) for key in self.keys]


def put_words(server: PostgresServer) -> Database:
    """The table `words` in a database of its own; keys from `ä 1` to `ä ROWS` have a row."""
    database = server.new_database(LATIN1)
    database.execute(
        "CREATE TABLE words (id text PRIMARY KEY, name text NOT NULL)",
        "INSERT INTO words SELECT chr(228) || ' ' || id, 'word ' || id"
        f" FROM generate_series(1, {ROWS}) AS id",
        "ANALYZE words",
    )
    return database


def _expected(key: str) -> str:
    letter, number = key.split()
    if letter == "漢":
        return "error key_rejected"
    return f"fetched word {number}" if int(number) <= ROWS else "missing"

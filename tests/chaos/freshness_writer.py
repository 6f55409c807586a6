"""Somebody who changes the table all the time, in transactions of all kinds.

What cannot be written while the server is away is not made good later.
"""

import random
import time
from collections.abc import Callable
from typing import Any

import psycopg

from tests.chaos.freshness_table import KEYS, NAME, ReplacedVersions
from tests.chaos.resting_worker import RestingWorker
from tests.integration.postgres_server import Database

_MOST_KEYS = 20  # of one transaction
_PAUSE_S = 0.01  # between two transactions: about so many rows a second that a key lasts a while
_AWAY_S = 0.2

# Rows that another transaction holds are left out: nobody waits, and nobody locks in a circle.
_PICKED = f"SELECT id, version FROM {NAME} WHERE id = ANY(%s) FOR UPDATE SKIP LOCKED"
UPDATE = f"""WITH old AS MATERIALIZED ({_PICKED}),
    new AS MATERIALIZED (SELECT id, version, nextval('versions') AS next FROM old)
    UPDATE {NAME} AS t SET version = new.next, payload = 'v' || new.next
    FROM new WHERE t.id = new.id RETURNING new.version"""
_DELETE = f"""WITH old AS MATERIALIZED ({_PICKED})
    DELETE FROM {NAME} AS t USING old WHERE t.id = old.id RETURNING old.version"""
_INSERT = f"""INSERT INTO {NAME}
    SELECT id, version, 'v' || version
    FROM (SELECT id, nextval('versions') AS version FROM unnest(%s::int8[]) AS id) AS new
    ON CONFLICT DO NOTHING"""
_MOVE = f"""WITH old AS MATERIALIZED ({_PICKED} LIMIT 1),
    new AS MATERIALIZED (SELECT id, version, nextval('versions') AS next FROM old)
    UPDATE {NAME} AS t SET id = %s, version = new.next, payload = 'v' || new.next
    FROM new WHERE t.id = new.id RETURNING new.version"""

Connection = psycopg.Connection[tuple[Any, ...]]


class FreshnessWriter(RestingWorker):
    """One thread with one connection at a time; its errors are those of a server that is away."""

    def __init__(self, database: Database, replaced: ReplacedVersions, *, seed: int) -> None:
        super().__init__(f"writer {seed}")
        self.commits = 0
        self.failures = 0  # transactions that nobody knows the end of
        self._database = database
        self._replaced = replaced
        self._chance = random.Random(seed)  # noqa: S311 -- a seed is the point

    def work(self) -> None:
        """Write, over new connections where the server was away, until the end."""
        while self.gate.pass_through():
            try:
                with psycopg.connect(self._database.dsn(), autocommit=True) as connection:
                    self._write(connection)
            except psycopg.Error:
                self.failures += 1
                time.sleep(_AWAY_S)

    def _write(self, connection: Connection) -> None:
        while self.gate.pass_through():
            self._transact(connection)
            self.commits += 1
            time.sleep(_PAUSE_S)

    def _transact(self, connection: Connection) -> None:
        kinds: dict[Callable[[Connection], list[int]], int] = {
            self._update: 12,
            self._update_twice: 2,
            self._delete: 1,
            self._insert: 1,
            self._move: 2,
            self._change_nothing: 1,
        }
        (kind,) = self._chance.choices(list(kinds), list(kinds.values()))
        versions = kind(connection)
        self._replaced.note(versions, time.monotonic())

    def _update(self, connection: Connection) -> list[int]:
        return _versions(connection, UPDATE, [self._keys(_MOST_KEYS)])

    def _update_twice(self, connection: Connection) -> list[int]:
        # One key twice, and part of it in a subtransaction, which has an id of its own.
        keys = self._keys(5)
        with connection.transaction():
            first = _versions(connection, UPDATE, [keys])
            with connection.transaction():
                return first + _versions(connection, UPDATE, [keys])

    def _delete(self, connection: Connection) -> list[int]:
        return _versions(connection, _DELETE, [self._keys(10)])

    def _insert(self, connection: Connection) -> list[int]:
        connection.execute(_INSERT.encode(), [self._keys(50)])
        return []

    def _move(self, connection: Connection) -> list[int]:
        (target,) = self._keys(1)
        try:
            return _versions(connection, _MOVE, [self._keys(1), target])
        except psycopg.errors.UniqueViolation:
            return []

    def _change_nothing(self, connection: Connection) -> list[int]:
        with connection.transaction(force_rollback=True):
            _versions(connection, UPDATE, [self._keys(_MOST_KEYS)])
        return []

    def _keys(self, most: int) -> list[int]:
        return sorted({self._chance.randrange(KEYS) for _ in range(self._chance.randint(1, most))})


def _versions(connection: Connection, statement: str, arguments: list[object]) -> list[int]:
    return [row[0] for row in connection.execute(statement.encode(), arguments).fetchall()]

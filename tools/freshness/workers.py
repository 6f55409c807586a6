"""Worker threads of the freshness audit: one writes rows, one looks keys up and counts outcomes.

A worker can be paused: the audit compares answers with the table while nothing changes.
"""

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import psycopg

from lookup_core.errors import SidelookError
from tools.freshness.connections import LookupAnswers, LookupConnection
from tools.freshness.table import KEYS, NAME, ReplacedVersions
from tools.processes.postgres_server import Database

BULK_KEYS = 1_000
LATE_S = 13.0  # a hit on a row that was replaced earlier is late; feeds stall after 12 s
_SINGLES = 20  # after each bulk lookup
_PAUSE_S = 0.01  # between two transactions, and between two rounds of lookups
_AWAY_S = 0.2  # between two attempts to reach a server that is away
_PATIENCE_S = 60.0
_ZIPF = 1.1
_MOST_KEYS_PER_TRANSACTION = 20

# SKIP LOCKED: writers neither wait for one another nor deadlock.
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


class PausableWorker:
    """Runs `work` in a thread; paused at first. `work` calls `may_work` before each step."""

    def __init__(self, name: str) -> None:
        self._thread = threading.Thread(target=self.work, name=name)
        self._changed = threading.Condition()
        self._is_running = False
        self._is_idle = False  # waits in `may_work`
        self._is_over = False

    def work(self) -> None:
        """Take steps while `may_work` returns True."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start the thread."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Finish the current step and end the thread."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._thread.join()

    def resume(self) -> None:
        """Let it work."""
        with self._changed:
            self._is_running = True
            self._changed.notify_all()

    def pause(self) -> None:
        """Start no more steps; returns when the current step has ended."""
        with self._changed:
            self._is_running = False
            is_idle = self._changed.wait_for(lambda: self._is_idle, _PATIENCE_S)
            assert is_idle, f"a step of {self._thread.name} does not end"

    def may_work(self) -> bool:
        """Wait while paused; False at the end."""
        with self._changed:
            self._is_idle = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._is_running or self._is_over)
            self._is_idle = False
            return not self._is_over


@dataclass(slots=True)
class LookupCounts:
    """The answers that one worker has received."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failed_requests: int = 0
    late_hits: int = 0
    longest_lag_s: float = 0.0


class LookupWorker(PausableWorker):
    """Looks up keys of one dimension, half of them Zipf-distributed, by bulk and single lookups."""

    def __init__(
        self, connection: LookupConnection, replaced: ReplacedVersions, *, seed: int
    ) -> None:
        super().__init__(f"lookups {seed}")
        self.counts = LookupCounts()
        self.is_waiting = False  # for an answer
        self._connection = connection
        self._replaced = replaced
        self._chance = np.random.default_rng(seed)

    def work(self) -> None:
        """Look up until the end; a failed request is counted."""
        while self.may_work():
            try:
                self._look_up()
            except (OSError, http.client.HTTPException, SidelookError):
                self.counts.failed_requests += 1
            time.sleep(_PAUSE_S)
        self._connection.close()

    def _look_up(self) -> None:
        keys = self._keys(BULK_KEYS)
        self._count(partial(self._connection.bulk, keys))
        for key in keys[:_SINGLES].tolist():
            self._count(partial(self._connection.single, key))

    def _count(self, look_up: Callable[[], LookupAnswers]) -> None:
        began_at = time.monotonic()
        self.is_waiting = True
        try:
            answers = look_up()
        finally:
            self.is_waiting = False
        self.counts.outcomes += answers.counts
        hits = answers.versions[answers.outcomes == "hit"]
        if hits.size:
            lags_s = self._replaced.lags_s(hits, began_at)
            self.counts.late_hits += int((lags_s > LATE_S).sum())
            self.counts.longest_lag_s = max(self.counts.longest_lag_s, float(lags_s.max()))

    def _keys(self, count: int) -> npt.NDArray[np.int64]:
        # Half of them evenly distributed, so that cold keys are cached, too.
        popular = self._chance.zipf(_ZIPF, count // 2) % KEYS
        return np.concatenate((popular, self._chance.integers(0, KEYS, count - count // 2)))


class WriteWorker(PausableWorker):
    """Changes rows in transactions of all kinds, over one connection at a time."""

    def __init__(
        self, database: Database, replaced: ReplacedVersions, *, key_count: int, seed: int
    ) -> None:
        """Changes the last `key_count` keys only; the first ones are the most popular."""
        super().__init__(f"writer {seed}")
        self.commits = 0
        self.failures = 0  # transactions with an unknown result
        self._database = database
        self._replaced = replaced
        self._first_key = KEYS - key_count
        self._chance = random.Random(seed)

    def work(self) -> None:
        """Write until the end; reconnect while the server is away."""
        while self.may_work():
            try:
                with psycopg.connect(self._database.dsn(), autocommit=True) as connection:
                    self._write(connection)
            except psycopg.Error:
                self.failures += 1
                time.sleep(_AWAY_S)

    def _write(self, connection: Connection) -> None:
        while self.may_work():
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
        return _versions(connection, UPDATE, [self._keys(_MOST_KEYS_PER_TRANSACTION)])

    def _update_twice(self, connection: Connection) -> list[int]:
        # One key twice, the second time in a subtransaction, which has an id of its own.
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
            _versions(connection, UPDATE, [self._keys(_MOST_KEYS_PER_TRANSACTION)])
        return []

    def _keys(self, most: int) -> list[int]:
        count = self._chance.randint(1, most)
        return sorted({self._chance.randrange(self._first_key, KEYS) for _ in range(count)})


def _versions(connection: Connection, statement: str, arguments: list[object]) -> list[int]:
    return [row[0] for row in connection.execute(statement.encode(), arguments).fetchall()]

"""Table of the freshness audit, and the time at which each row version was replaced."""

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tools.processes.postgres_server import Database

NAME = "planes"
KEYS = 12_000  # 0 to 11,999; about 10,000 of them have a row at any time
ABSENT = -1  # the version of a missing row
NEVER = 0  # the version of a row that was never in the table, such as one with a masked value

Versions = npt.NDArray[np.int64]  # [keys] of each key's row, or ABSENT

# Versions come from a sequence: each belongs to one row only.
EMPTY = f"CREATE TABLE {NAME} (id int8 PRIMARY KEY, version int8 NOT NULL, payload text NOT NULL)"
_CREATE = (
    "CREATE SEQUENCE versions",
    EMPTY,
    f"ALTER TABLE {NAME} REPLICA IDENTITY DEFAULT",
)
_FILL = f"""INSERT INTO {NAME}
    SELECT id, version, 'v' || version
    FROM (SELECT id, nextval('versions') AS version FROM generate_series(0, {KEYS - 1}) AS id
          WHERE id % 6 > 0) AS new"""
EMPTY_AND_FILL = f"BEGIN; TRUNCATE {NAME}; {_FILL}; COMMIT"


@dataclass(frozen=True, slots=True)
class StaleEntry:
    """An answer that differs from the table although its change is applied, or without a lease."""

    dimension: str
    key: int
    outcome: str
    version: int
    table_version: int


def create_table(database: Database) -> None:
    """Create and fill the table."""
    database.execute(*_CREATE, _FILL, "ANALYZE")


def versions_in(database: Database) -> Versions:
    """The versions in the table; AssertionError for a row with a foreign payload."""
    versions = np.full(KEYS, ABSENT, np.int64)
    rows = database.query(f"SELECT id, version, payload FROM {NAME} WHERE id < {KEYS}")
    for key, version, payload in rows:
        assert payload == f"v{version}"
        versions[key] = version
    return versions


class ReplacedVersions:
    """{version: time of its replacement}; writers note it, lookup workers read it."""

    def __init__(self) -> None:
        self._replaced_at = np.full(1 << 16, np.inf)
        self._replaced_at[NEVER] = -np.inf
        self._lock = threading.Lock()

    def note(self, versions: list[int], replaced_at: float) -> None:
        """Note that the commit that replaced these versions was confirmed at this time."""
        if not versions:
            return
        with self._lock:
            while max(versions) >= len(self._replaced_at):
                more = np.full(len(self._replaced_at), np.inf)
                self._replaced_at = np.concatenate((self._replaced_at, more))
            self._replaced_at[versions] = replaced_at

    def lags_s(self, versions: Versions, began_at: float) -> npt.NDArray[np.float64]:
        """Seconds between the replacement of each version and this time; 0 if it is current.

        Infinite for NEVER.
        """
        known = self._replaced_at
        is_known = (versions >= 0) & (versions < len(known))
        lags_s = np.zeros(len(versions))
        lags_s[is_known] = np.maximum(began_at - known[versions[is_known]], 0.0)
        return lags_s

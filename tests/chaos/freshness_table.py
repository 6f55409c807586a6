"""The table of the auditor of freshness, and when each of its rows was replaced.

Writes and reads it; what a cache may tell of it is judged elsewhere.
"""

import threading

import numpy as np
import numpy.typing as npt

from tests.integration.postgres_server import Database

NAME = "planes"
KEYS = 12_000  # 0 to 11,999; about 10,000 of them have a row at any time
ABSENT = -1  # in the place of a version

Versions = npt.NDArray[np.int64]  # [keys] of each key's row, or ABSENT

# The versions come from a sequence: each is of one row, and of no other.
_CREATE = (
    "CREATE SEQUENCE versions",
    f"CREATE TABLE {NAME} (id int8 PRIMARY KEY, version int8 NOT NULL, payload text NOT NULL)",
    f"ALTER TABLE {NAME} REPLICA IDENTITY DEFAULT",
)
_FILL = f"""INSERT INTO {NAME}
    SELECT id, version, 'v' || version
    FROM (SELECT id, nextval('versions') AS version FROM generate_series(0, {KEYS - 1}) AS id
          WHERE id % 6 > 0) AS new"""
EMPTY_AND_FILL = f"BEGIN; TRUNCATE {NAME}; {_FILL}; COMMIT"


def create_table(database: Database) -> None:
    """Make it, and fill it."""
    database.execute(*_CREATE, _FILL, "ANALYZE")


def versions_in(database: Database) -> Versions:
    """What is in the table now; AssertionError for a row that is not as it was written."""
    versions = np.full(KEYS, ABSENT, np.int64)
    rows = database.query(f"SELECT id, version, payload FROM {NAME} WHERE id < {KEYS}")
    for key, version, payload in rows:
        assert payload == f"v{version}"
        versions[key] = version
    return versions


class ReplacedVersions:
    """When each version ceased to be; written by writers, read by those who look up."""

    def __init__(self) -> None:
        self._replaced_at = np.full(1 << 16, np.inf)
        self._lock = threading.Lock()

    def note(self, versions: list[int], replaced_at: float) -> None:
        """The commit that replaced these was confirmed then."""
        if not versions:
            return
        with self._lock:
            while max(versions) >= len(self._replaced_at):
                more = np.full(len(self._replaced_at), np.inf)
                self._replaced_at = np.concatenate((self._replaced_at, more))
            self._replaced_at[versions] = replaced_at

    def lags_s(self, versions: Versions, asked_at: float) -> npt.NDArray[np.float64]:
        """How long before that moment each of them was replaced; 0 for those that were not."""
        known = self._replaced_at
        is_known = (versions >= 0) & (versions < len(known))
        lags_s = np.zeros(len(versions))
        lags_s[is_known] = np.maximum(asked_at - known[versions[is_known]], 0.0)
        return lags_s

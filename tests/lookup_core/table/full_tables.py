"""Builder of full tables with numbered keys and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lookup_core.keys.canonical_keys import Hashes
from lookup_core.settings import CacheSettings
from lookup_core.table.full_table import FullTable
from lookup_core.table.reload import Reload
from tests.lookup_core.cache.row_caches import CacheKind

NOTHING_UNSEEN: Hashes = np.zeros(0, np.uint64)
ROOMY = 2**20

# A change without a row: the key was deleted, or its row is not reported.
GONE = "gone"
CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class NumberTable:
    """A table of one kind of dimension."""

    kind: CacheKind
    table: FullTable

    @classmethod
    def empty(cls, kind: CacheKind, *, max_bytes: int = ROOMY) -> "NumberTable":
        """A table that was never loaded."""
        return cls(kind, FullTable(kind.schema, CacheSettings(max_bytes=max_bytes)))

    @classmethod
    def loaded(
        cls, kind: CacheKind, values: Mapping[int, int], *, now: float = 0.0, max_bytes: int = ROOMY
    ) -> "NumberTable":
        """A table with these keys and values."""
        table = cls.empty(kind, max_bytes=max_bytes)
        table.reload([*values.items()], now=now)
        return table

    def reload(self, *batches: Sequence[tuple[int, int]], now: float = 0.0) -> None:
        """Load the table from these batches of keys and values."""
        reload = self.table.begin_reload(now)
        for batch in batches:
            self.read(reload, batch)
        self.finish(reload)

    def read(self, reload: Reload, rows: Sequence[tuple[int, int]]) -> None:
        """A reload reads one batch of keys and values."""
        keys = self.kind.keys([key for key, _ in rows])
        has_row = np.ones(keys.size, np.bool_)
        reload.add(keys, self.kind.rows([value for _, value in rows]), has_row)
        self.table.check_invariants()

    def finish(self, reload: Reload, *, unseen: Hashes = NOTHING_UNSEEN) -> None:
        """A reload ends; it does not show the changes of these keys."""
        assert self.table.finish_reload(reload, unseen=unseen)
        self.table.check_invariants()

    def apply(self, changes: Sequence[tuple[int, int | str]], *, now: float = 0.0) -> None:
        """Apply changes: a value, GONE or CHANGED for each key."""
        values = [value if isinstance(value, int) else 0 for _, value in changes]
        self.table.apply(
            self.kind.keys([key for key, _ in changes]),
            np.array([isinstance(value, int) for _, value in changes], np.bool_),
            is_gone=np.array([value == GONE for _, value in changes], np.bool_),
            rows=self.kind.rows(values),
            now=now,
        )
        self.table.check_invariants()

    def fill(
        self, values: Mapping[int, int], missing: Sequence[int] = (), *, now: float = 0.0
    ) -> None:
        """A query returns these values, and no row for the missing keys."""
        has_row = np.array([True] * len(values) + [False] * len(missing), np.bool_)
        keys = self.kind.keys([*values, *missing])
        rows = self.kind.rows([*values.values()])
        self.table.fill(keys, has_row, rows=rows, read_at=now, now=now)
        self.table.check_invariants()

    def found(self, numbers: Sequence[int], *, now: float = 0.0) -> list[object]:
        """The value of each key's row, "missing", or None for an unknown key."""
        probe = self.table.probe(self.kind.keys(numbers), now)
        assert not probe.is_stale.any()
        return self.kind.found(self.table, probe)

    def hit(self, number: int, *, now: float = 0.0) -> object:
        """The value of one key's row; None without a hit."""
        return self.kind.hit(self.table, number, now)

    def rows(self, *values: int) -> list[object]:
        """Rows with these values, as `found` shows them."""
        return [self.kind.row(value) for value in values]

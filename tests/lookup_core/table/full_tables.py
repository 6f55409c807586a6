"""Builder of full tables with numbered keys and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from lookup_core.cache.cache_memory import OwnMemory
from lookup_core.cache.cache_view import CacheView
from lookup_core.cache.entry_states import Seconds
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.keys.canonical_keys import Hashes
from lookup_core.settings import CacheSettings
from lookup_core.table.full_reader import FullReader
from lookup_core.table.full_table import FullTable
from lookup_core.table.reload import Reload
from tests.lookup_core.cache.row_caches import CacheKind, tuples

NOTHING_UNSEEN: Hashes = np.zeros(0, np.uint64)
ROOMY = 2**20

# A change without a row: the key was deleted, or its row is not reported.
GONE = "gone"
CHANGED = "changed"


class ReadMemory(OwnMemory):
    """Memory of this process, which readers use as if they were in another one."""

    is_shared = True

    def __init__(self) -> None:
        self.view: CacheView | None = None
        self.map_number = 0
        self.fresh_at = 0.0
        self.changes = 1

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`."""
        self.view = view
        self.map_number += 1

    def begin_change(self) -> None:
        """See `CacheMemory`."""
        self.changes += self.changes % 2 == 0

    def end_change(self, *, is_whole: bool) -> None:
        """See `CacheMemory`."""
        self.changes += is_whole

    def confirm(self, fresh_at: float) -> None:
        """See `CacheMemory`."""
        self.fresh_at = fresh_at

    def reader(self) -> FullReader:
        """A reader of the table as it is."""
        assert self.view is not None
        return FullReader(self.view, self, self.fence, number=self.map_number)


@dataclass(frozen=True, slots=True)
class NumberTable:
    """A table of one kind of dimension."""

    kind: CacheKind
    table: FullTable
    memory: ReadMemory

    @classmethod
    def empty(cls, kind: CacheKind, *, max_bytes: int = ROOMY) -> "NumberTable":
        """A table that was never loaded."""
        memory = ReadMemory()
        table = FullTable(kind.schema, CacheSettings(max_bytes=max_bytes), memory)
        return cls(kind, table, memory)

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
        keys = self.kind.keys([key for key, _ in changes])
        change = RowChanges(
            keys=pa.record_batch([pa.array(keys.hashes)], ["unused"]),
            has_row=np.array([isinstance(value, int) for _, value in changes], np.bool_),
            is_gone=np.array([value == GONE for _, value in changes], np.bool_),
            rows=self.kind.rows(values),
            transaction_ids=np.zeros(len(changes), np.uint32),
        )
        self.table.apply(keys, change, now)
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
        found = self.kind.found(self.table, probe)
        self.check_reader(numbers, found, probe.ages_s, now=now)
        return found

    def check_reader(
        self, numbers: Sequence[int], expected: Sequence[object], ages_s: Seconds, *, now: float
    ) -> None:
        """A reader finds the same, and may not know keys that have the hash of another one."""
        found, found_ages_s = self.read_by_others(numbers, now=now)
        if self.memory.changes % 2:  # with suspects, a reader knows no missing key
            expected = [None if each == "missing" else each for each in expected]
        if self.kind.hash_count is not None:
            expected = [
                own if it is not None else None for own, it in zip(expected, found, strict=True)
            ]
        assert found == expected
        # Scenarios may load later than `now`; a reader reports no age below zero.
        assert np.maximum(found_ages_s, 0).tolist() == np.maximum(ages_s[_known(found)], 0).tolist()

    def read_by_others(
        self, numbers: Sequence[int], *, now: float = 0.0
    ) -> tuple[list[object], list[float]]:
        """What a reader finds, as `found` shows it, and the ages of what it knows."""
        names = self.kind.schema.columns.names
        read = self.memory.reader().read(self.kind.keys(numbers), names, now)
        assert not read.visited.size
        found: list[object] = [None] * len(numbers)
        ages_s = np.zeros(len(numbers))
        for at, row in zip(read.rows.positions.tolist(), tuples(read.rows.rows), strict=True):
            found[at] = row
        for at in read.missing.positions.tolist():
            found[at] = "missing"
        for each in (read.rows, read.missing):
            ages_s[each.positions] = each.ages_s
        return found, ages_s[_known(found)].tolist()

    def hit(self, number: int, *, now: float = 0.0) -> object:
        """The value of one key's row; None without a hit."""
        return self.kind.hit(self.table, number, now)

    def rows(self, *values: int) -> list[object]:
        """Rows with these values, as `found` shows them."""
        return [self.kind.row(value) for value in values]


def _known(found: Sequence[object]) -> list[int]:
    return [at for at, each in enumerate(found) if each is not None]

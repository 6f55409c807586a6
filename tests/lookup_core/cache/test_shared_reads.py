"""Reads of a cache that changes meanwhile: every order of stores and loads."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from lookup_core.cache.cache_view import CacheReader
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.row_cache import RowCache
from lookup_core.settings import CacheSettings
from tests.lookup_core.cache.interleaving import WatchedMemory, interleavings
from tests.lookup_core.cache.row_caches import KINDS, CacheKind

NOW = 1.0
GENERATION = 1_000  # rows of the first generation show the key's number, later ones this much more


class Writer:
    """A cache whose rows show their key and their generation."""

    def __init__(self, kind: CacheKind, max_bytes: int = 2**20) -> None:
        self.kind = kind
        self.memory = WatchedMemory()
        self.settings = CacheSettings(max_bytes=max_bytes, ttl_s=60.0, negative_ttl_s=60.0)
        self.cache = RowCache(kind.schema, self.settings, self.memory)

    def put(self, *numbers: int, generation: int = 0) -> None:
        """Cache a row of this generation for each of these keys."""
        values = [number + generation * GENERATION for number in numbers]
        every = np.ones(len(numbers), np.bool_)
        keys, rows = self.kind.keys(numbers), self.kind.rows(values)
        self.cache.fill(keys, every, rows=rows, read_at=NOW, now=NOW)

    def miss(self, *numbers: int) -> None:
        """Cache a negative entry for each of these keys."""
        none = np.zeros(len(numbers), np.bool_)
        keys, rows = self.kind.keys(numbers), self.kind.rows([])
        self.cache.fill(keys, none, rows=rows, read_at=NOW, now=NOW)

    def remove(self, *numbers: int) -> None:
        """Invalidate keys."""
        self.cache.invalidate(self.kind.keys(numbers))

    def read(self, number: int, times: Sequence[int] = (2**31,)) -> int | str | None:
        """What a reader with loads at these times finds: a row's value, "missing", or None."""
        reader = CacheReader(
            self.memory.read_at(*times), Lifetimes(self.settings), self.memory.fence
        )
        found = reader.read(self.kind.keys([number]), ["position"], NOW)
        self.memory.is_read = False
        if len(found.missing.places):
            return "missing"
        values = found.rows.rows.column(0).to_pylist()
        return values[0] if values else None


@dataclass(frozen=True, slots=True)
class Case:
    """A change of a cache, and what a reader of key 1 may see: before it, during it, after it."""

    prepare: Callable[[Writer], None]
    change: Callable[[Writer], None]
    before: int | str | None
    after: int | str | None
    max_bytes: int = 2**20


def crowd(writer: Writer) -> None:
    """Fill a small cache."""
    for first in range(0, 60, 10):
        writer.put(*range(first, first + 10))


CASES = {
    "put": Case(lambda w: w.put(2), lambda w: w.put(1, 3), None, 1),
    "replace": Case(lambda w: w.put(1, 2), lambda w: w.put(1, generation=1), 1, 1_001),
    "invalidate": Case(lambda w: w.put(1, 2), lambda w: w.remove(1), 1, None),
    "missing to row": Case(lambda w: w.miss(1), lambda w: w.put(1), "missing", 1),
    "row to missing": Case(lambda w: w.put(1), lambda w: w.miss(1), 1, "missing"),
}


@pytest.mark.parametrize("kind", [KINDS["number"], KINDS["equal hashes"]], ids=["number", "text"])
@pytest.mark.parametrize("name", CASES)
def test_reader_sees_old_or_new_entry(kind: CacheKind, name: str) -> None:
    """Wherever its loads are among the stores, a reader sees one of the entries, or none."""
    case = CASES[name]
    writer = Writer(kind, case.max_bytes)
    case.prepare(writer)
    before, first = writer.read(1), writer.memory.stores
    case.change(writer)
    after, loads = writer.read(1), writer.memory.loads

    found = {
        writer.read(1, times)
        for times in interleavings(first=first, last=writer.memory.stores, loads=loads)
    }
    assert (before, after) == (case.before, case.after)
    assert {before, after} <= found <= {before, after, None}

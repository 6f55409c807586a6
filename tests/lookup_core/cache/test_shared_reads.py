"""Reads of a cache that changes meanwhile: every order of loads and stores.

With weak memory as well: loads and stores between two fences are then in any order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
import pytest

from lookup_core.cache.cache_view import CacheReader, CacheView
from lookup_core.cache.cached_entries import CachedEntries
from lookup_core.cache.entry_states import Lifetimes
from lookup_core.cache.row_cache import RowCache
from lookup_core.cache.row_segments import RowQueue
from lookup_core.settings import CacheSettings
from tests.lookup_core.cache.broken_reader import (
    WITHOUT_ADDRESSES,
    WITHOUT_ANY,
    WITHOUT_HASHES,
    WITHOUT_KEYS,
    broken_reader,
)
from tests.lookup_core.cache.interleaving import WatchedMemory
from tests.lookup_core.cache.row_caches import KINDS, OVERHEAD_BYTES, CacheKind

TTL_S = 3_600.0
NOW = 6_000.0
LATER_S = 3_000.0  # the first ticks of this time to live end before
GENERATION = 1_000  # rows of the first generation show the key's number, later ones this much more
MISSING = "missing"
NUMBERS = KINDS["number"]
SAME_HASH = CacheKind(KINDS["text"].schema, hash_count=1)


def nothing() -> None:
    """Order nothing."""


Entry = int | str | None  # a row's value, MISSING, or no entry
Reader = Callable[..., CacheReader]


class Writer:
    """A cache whose rows show their key and their generation."""

    def __init__(self, kind: CacheKind, memory: WatchedMemory, max_bytes: int) -> None:
        self.kind = kind
        self.memory = memory
        settings = CacheSettings(max_bytes=max_bytes, ttl_s=TTL_S, negative_ttl_s=TTL_S)
        self.lifetimes = Lifetimes(settings)
        self.cache = RowCache(kind.schema, settings, memory)

    @property
    def entries(self) -> CachedEntries:
        """The parts of the cache."""
        return self.cache.entries

    def put(
        self, *numbers: int, generation: int = 0, age_s: float = 0.0, settles_later: bool = False
    ) -> None:
        """Cache a row of this generation for each of these keys."""
        values = [number + generation * GENERATION for number in numbers]
        every = np.ones(len(numbers), np.bool_)
        keys, rows = self.kind.keys(numbers), self.kind.rows(values)
        now = NOW - age_s
        self.cache.fill(keys, every, rows=rows, read_at=now, now=now, settles_later=settles_later)

    def miss(self, *numbers: int) -> None:
        """Cache a negative entry for each of these keys."""
        none = np.zeros(len(numbers), np.bool_)
        keys, rows = self.kind.keys(numbers), self.kind.rows([])
        self.cache.fill(keys, none, rows=rows, read_at=NOW, now=NOW, settles_later=False)

    def remove(self, *numbers: int) -> None:
        """Invalidate keys."""
        self.cache.invalidate(self.kind.keys(numbers))

    def visit(self, *numbers: int) -> None:
        """Look keys up."""
        self.cache.probe(self.kind.keys(numbers), NOW)

    def shrink(self) -> None:
        """Renumber the slots."""
        with self.cache._changing():
            self.entries.shrink()

    def split(self) -> None:
        """Divide the rows of the oldest segment into segments of some rows each."""
        with self.cache._changing():
            self.entries.rows.is_roomy = False
            self.entries.rows.queues[RowQueue.SMALL].unit_bytes = 150
            self.entries.rows.split_oldest(RowQueue.SMALL)

    def limit_addresses(self, count: int) -> None:
        """Let addresses run out after this number."""
        self.entries.rows._address_count = count

    def at_rest(self, numbers: Sequence[int]) -> list[Entry]:
        """The entries that the cache itself knows."""
        found = self.kind.found_at(self.cache, numbers, NOW)
        return [cast("Entry", each[0] if isinstance(each, tuple) else each) for each in found]

    def read_now(self, *numbers: int) -> list[Entry]:
        """The entries that a reader finds while nothing changes."""
        reading = partial(self.read, numbers, CacheReader)
        (found,) = self.memory.readings(reading, since=self.memory.stores)
        return found

    def read(self, numbers: Sequence[int], reader: Reader) -> list[Entry]:
        """The entries that a reader finds."""
        _, view = self.memory.view()
        found = reader(view, self.lifetimes, self.memory.fence).read(
            self.kind.keys(numbers), ["position"], NOW
        )
        entries: list[Entry] = [None] * len(numbers)
        values = found.rows.rows.column(0).to_pylist()
        for at, value in zip(found.rows.positions.tolist(), values, strict=True):
            entries[at] = value
        for at in found.missing.positions.tolist():
            assert entries[at] is None
            entries[at] = MISSING
        return entries


Step = Callable[[Writer], object]


@dataclass(frozen=True, slots=True)
class Case:
    """Changes of a cache one after another, of which the first ones prepare it."""

    steps: Sequence[Step]
    keys: Sequence[int] = (1, 2)  # to be read
    max_bytes: int = 2**20


def put(*numbers: int, generation: int = 0, age_s: float = 0.0) -> Step:
    """A step that caches rows."""
    return lambda writer: writer.put(*numbers, generation=generation, age_s=age_s)


def put_for_later(*numbers: int, generation: int = 0) -> Step:
    """A step that caches rows that readers see when they settle."""
    return lambda writer: writer.put(*numbers, generation=generation, settles_later=True)


def settle(seconds: float) -> Step:
    """A step that lets rows settle."""
    return lambda writer: writer.cache.settle(NOW + seconds)


def remove(*numbers: int) -> Step:
    """A step that invalidates keys."""
    return lambda writer: writer.remove(*numbers)


def miss(*numbers: int) -> Step:
    """A step that caches negative entries."""
    return lambda writer: writer.miss(*numbers)


TINY = OVERHEAD_BYTES + 400  # room for a dozen rows
FLOOD = [put(*range(at, at + 5)) for at in range(10, 30, 5)]
CASES = {
    "put": Case([put(2), put(1, 3)]),
    "replace": Case([put(1, 2), put(1, generation=1)]),
    "invalidate": Case([put(1, 2), remove(1)]),
    "missing to row": Case([miss(1), put(1)]),
    "row to missing": Case([put(1), miss(1)]),
    "expired": Case([put(1, age_s=TTL_S), put(1, generation=1)]),
    "slot of another key": Case([put(1), remove(1), put(2)]),
    "slot of an expired row": Case([put(1, age_s=TTL_S), remove(1), put(2)]),
    "slot of a fresh row": Case([put(1), remove(1), put(2, age_s=TTL_S)]),
    "slot of a negative entry": Case([miss(1), remove(1), put(2)]),
    "eviction": Case([put(1, 2), *FLOOD], max_bytes=TINY),
    "move to the main queue": Case([put(1, 2), lambda w: w.visit(1), *FLOOD], max_bytes=TINY),
    "compaction": Case([put(1, 2, 3, 4), remove(2, 3, 4), put(2)]),
    "merge": Case([put(1), put(2), put(3)]),
    "settle": Case(
        [
            *(put(3), put_for_later(1, 2), settle(0.1), remove(1)),
            *(put_for_later(1, generation=1), settle(0.3), put_for_later(4), settle(0.5)),
            *(settle(0.7), settle(0.9)),
        ]
    ),
    "split": Case([put(*range(1, 9)), Writer.split, remove(1)]),
    "more slots": Case(
        [put(*range(1, 513)), put(600), remove(1), put(601)],
        keys=(1, 601),
    ),
    "more places": Case(
        [put(*range(1, 601)), put(*range(601, 621)), remove(1), put(700)],
        keys=(1, 700),
    ),
    "other slots": Case([put(1, 2, 3), remove(1), Writer.shrink, remove(2), put(1, generation=1)]),
    "clear": Case([put(1, 2), lambda w: w.cache.clear(), put(2, generation=1), put(1)]),
    "later ticks": Case(
        [put(1, 2), put(3, age_s=-LATER_S), remove(1), put(4)],
        keys=(1, 3, 4),
    ),
    "closed gaps": Case(
        [lambda w: w.limit_addresses(9), put(1, 2), put(3), put(4), remove(1), put(5)],
        keys=(1, 5),
    ),
}


def wrong_answers(
    kind: CacheKind, case: Case, *, is_weak: bool, reader: Reader = CacheReader
) -> list[str]:
    """What readers find that their keys did not have at a time of the read.

    After the last step, and then only, they must find everything.
    """
    writer = Writer(kind, WatchedMemory(is_weak=is_weak), case.max_bytes)
    times: list[int] = []
    states: list[list[Entry]] = []
    for step in case.steps:
        step(writer)
        times.append(writer.memory.stores)
        states.append(writer.at_rest(case.keys))
    # One by one in weak memory: the loads of several keys are in far too many orders.
    wrong = []
    for keys in zip(case.keys) if is_weak else [case.keys]:
        asked = [case.keys.index(key) for key in keys]
        known = [[entries[at] for at in asked] for entries in states]
        wrong += wrong_reads(writer, partial(writer.read, keys, reader), times, known)
    return wrong


def wrong_reads(
    writer: Writer, read: Callable[[], list[Entry]], times: list[int], known: list[list[Entry]]
) -> list[str]:
    """The wrong results of a read that begins at one of these times."""
    wrong = []
    for at, time in enumerate(times):
        possible = [{None, *entries} for entries in zip(*known[at:], strict=True)]
        for found in writer.memory.readings(read, since=time):
            if not all(each in known for each, known in zip(found, possible, strict=True)):
                wrong.append(f"{found} after step {at}, when {known[at:]}")
    if found != known[-1]:
        wrong.append(f"{found} at rest, when {known[-1]}")
    return wrong


LARGE = {"more slots", "more places", "eviction", "move to the main queue"}
# In order with keys that share hashes, weak with numbers; the other half takes as long again.
ORDERS = [
    pytest.param(
        *(kind, name, is_weak),
        marks=() if is_weak == (kind == "number") else pytest.mark.full,
        id=f"{kind}-{name}-{'weak' if is_weak else 'in order'}",
    )
    for name in CASES
    for kind in ("number", "text" if name in LARGE else "equal hashes")
    for is_weak in (False, True)
]


@pytest.mark.parametrize(("kind", "name", "is_weak"), ORDERS)
def test_reader_sees_entries_of_its_time(kind: str, name: str, *, is_weak: bool) -> None:
    """Wherever its loads are, a read finds an entry that its key has during it, or none."""
    assert wrong_answers(KINDS[kind], CASES[name], is_weak=is_weak) == []


REUSE = CASES["slot of an expired row"]


@pytest.mark.parametrize(
    ("lines", "kind", "name", "is_weak"),
    [
        (WITHOUT_HASHES, NUMBERS, "closed gaps", False),
        (WITHOUT_KEYS, SAME_HASH, "invalidate", False),
        (WITHOUT_ADDRESSES, NUMBERS, "slot of an expired row", False),
        (WITHOUT_ADDRESSES, NUMBERS, "slot of an expired row", True),
        (WITHOUT_ANY, NUMBERS, "slot of an expired row", False),
    ],
)
def test_missing_check_is_found(
    lines: Mapping[str, str], kind: CacheKind, name: str, *, is_weak: bool
) -> None:
    """A reader without one of its checks finds a wrong entry in these cases."""
    reader = broken_reader(lines)

    assert wrong_answers(kind, CASES[name], is_weak=is_weak, reader=reader)


def test_missing_fence_of_reader_is_found() -> None:
    """In weak memory, a reader without fences takes an expired row for a fresh one."""

    def unfenced(view: CacheView, lifetimes: Lifetimes, _: Callable[[], None]) -> CacheReader:
        return CacheReader(view, lifetimes, nothing)

    assert wrong_answers(NUMBERS, REUSE, is_weak=True, reader=unfenced)


def test_readers_see_settled_rows() -> None:
    """Rows that settle later are for this process only, until `settle` is due."""
    writer = Writer(NUMBERS, WatchedMemory(), 2**20)
    assert writer.cache.settle(NOW) is None
    writer.put(1, settles_later=True)

    assert writer.at_rest([1]) == [1]
    assert writer.cache.settle(NOW + 0.05) == NOW + 0.1
    assert writer.read_now(1) == [None]
    assert writer.cache.settle(NOW + 0.1) == pytest.approx(NOW + 0.2)  # more rows may come
    assert writer.read_now(1) == [1]
    assert writer.cache.settle(NOW + 0.3) is None
    assert writer.read_now(1) == [1]

"""Layout of a shared cache: the files of one folder, and the fields of its lease page.

| file | content |
| --- | --- |
| `lease` | one page, whose fields change in place: `LeaseField` |
| `description` | JSON, which never changes: `CacheDescription` |
| `map` | JSON, replaced as a whole: `CacheMap` |
| `numbers-N` | one array: places, hashes, states or addresses, which changes in place |
| `rows-N` | an Arrow IPC stream of one record batch, which never changes |
"""

import json
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

LAYOUT_VERSION = 3
_FILE_NAME = re.compile(r"(numbers|rows)-[0-9]+")
_ROW_ADDRESSES = 2**32
LEASE_FILE = "lease"
DESCRIPTION_FILE = "description"
MAP_FILE = "map"
LEASE_BYTES = 4096
LEASE_S = 0.6  # the most that a reader trusts a sidecar that has stopped


class LeaseField(IntEnum):
    """The 8-byte fields of the lease page; stores of aligned 8 bytes are never torn."""

    LAYOUT = 0  # unsigned: `LAYOUT_VERSION`
    MAP = 1  # unsigned: the number of replacements of the map
    VALID_UNTIL = 2  # float: CLOCK_BOOTTIME in seconds; later, the cache must not be read
    FRESH_AT = 3  # float: CLOCK_BOOTTIME in seconds; a full table is as fresh as that
    CHANGES = 4  # unsigned: even while a key that is absent from a full table has no row
    TIME_NAMESPACE = 5  # unsigned: inode of the writer's; in another one, clocks differ


class ArrayFiles(NamedTuple):
    """The files of the arrays."""

    places: str
    hashes: str
    states: str
    addresses: str


class ArrayLengths(NamedTuple):
    """The number of values in the arrays."""

    places: int
    slots: int  # in each of the other arrays


class SegmentFile(NamedTuple):
    """The file of one segment."""

    name: str
    start: int  # the address of its first row
    is_negative: bool


@dataclass(frozen=True, slots=True)
class CacheMap:
    """The files of a cache now, and what is needed to read them."""

    arrays: ArrayFiles
    tick_s: float
    first_tick: int
    segments: Sequence[SegmentFile]
    lengths: ArrayLengths

    def encoded(self) -> bytes:
        """The content of the file."""
        ticks = self.tick_s, self.first_tick
        return json.dumps([self.arrays, *ticks, self.segments, self.lengths]).encode()

    @classmethod
    def decoded(cls, content: bytes) -> "CacheMap":
        """The map of a file's content; raises ValueError for another one."""
        try:
            arrays, tick_s, first_tick, segments, lengths = json.loads(content)
            files = cls(
                arrays=ArrayFiles(*arrays),
                tick_s=tick_s,
                first_tick=first_tick,
                segments=[SegmentFile(*each) for each in segments],
                lengths=ArrayLengths(*lengths),
            )
        except (TypeError, RecursionError) as error:
            raise ValueError(f"no map of a cache: {error}") from error
        files.check()
        return files

    def check(self) -> None:
        """Raise ValueError for names outside of the folder, and for impossible numbers."""
        names = [*self.arrays, *(each.name for each in self.segments)]
        are_names = all(_FILE_NAME.fullmatch(str(name)) for name in names)
        are_distinct = are_names and len(set(names)) == len(names)
        starts = [each.start for each in self.segments]
        are_addresses = all(type(start) is int and 0 <= start < _ROW_ADDRESSES for start in starts)
        has_ticks = type(self.first_tick) is int and type(self.tick_s) in {int, float}
        if not are_distinct or not are_addresses or not has_ticks or starts != sorted(set(starts)):
            raise ValueError("no map of a cache: a name or number is impossible")


class LockFence:
    """Makes all processes see loads and stores before a call before those behind it.

    A release of a lock orders what precedes it, and an acquisition what follows. No processor swaps
    the release of the first pair with the acquisition of the second.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        """`lock` is used for nothing else."""
        self._lock = lock

    def __call__(self) -> None:
        """Order loads and stores."""
        with self._lock:
            pass
        with self._lock:
            pass

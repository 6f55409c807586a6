"""Shared cache of a sidecar on the same machine: its files, mapped into this process.

`lookup_core.cache.shared_layout` describes the folder.
"""

import logging
import mmap
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.cache.cache_view import HASH, CacheReader, CacheView, EntryReader, RowTable
from lookup_core.cache.cached_answers import CachedAnswers, CacheDescription, CachedLookup
from lookup_core.cache.entry_states import Lifetimes, StateTable
from lookup_core.cache.shared_layout import (
    DESCRIPTION_FILE,
    LAYOUT_VERSION,
    LEASE_BYTES,
    LEASE_FILE,
    MAP_FILE,
    CacheMap,
    LeaseField,
    LockFence,
)
from lookup_core.keys.key_index import KeyTable, Slots
from lookup_core.protocol import frames
from lookup_core.settings import CacheMode
from lookup_core.table.full_reader import FullReader
from spark_client.transport.endpoint import endpoint_of

_log = logging.getLogger(__name__)

_MAX_FRAME_VISITS = 262_144  # a mebibyte; of a larger batch, the other visits do not count
_NO_SLOTS = np.zeros(0, np.int32)

# The clock of the sidecar: it goes on while the machine is suspended.
boot_time: Callable[[], float] = partial(
    time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
)


class MappedCache:
    """The files of one cache, mapped read-only; for any thread."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = boot_time) -> None:
        """Raises OSError if the folder cannot be read, ValueError for another layout or clock."""
        self._folder = folder
        self.clock = clock
        lease = _mapped(folder / LEASE_FILE)
        if len(lease) != LEASE_BYTES:
            detail = f"{len(lease):,} bytes instead of {LEASE_BYTES:,}"
            raise ValueError(f"the lease of {folder} has {detail}")
        self._counts = np.frombuffer(lease, np.uint64)
        self._times = np.frombuffer(lease, np.float64)
        found = self._counts.item(LeaseField.LAYOUT)
        if found != LAYOUT_VERSION:
            raise ValueError(f"layout {found} of {folder} is not {LAYOUT_VERSION}")
        if self._counts.item(LeaseField.TIME_NAMESPACE) != _time_namespace():
            raise ValueError(f"{folder} has times of another time namespace")
        self.description = CacheDescription.decoded((folder / DESCRIPTION_FILE).read_bytes())
        self._lifetimes = Lifetimes(self.description.settings)
        self._fence = LockFence(threading.Lock())
        self._lock = threading.Lock()  # protects everything below
        self._map = 0  # its number; 0: none
        self._is_failing = False
        self._reader: EntryReader | None = None
        self._arrays: dict[str, mmap.mmap] = {}
        self._segments: dict[str, pa.RecordBatch] = {}

    def reader(self) -> EntryReader | None:
        """The cache as it is; None without a valid lease."""
        with self._lock:
            if not self.has_lease:
                return None
            if self._counts.item(LeaseField.MAP) != self._map:
                self._map_files()
            return self._reader

    @property
    def fresh_at(self) -> float:
        """See `TableState`."""
        return self._times.item(LeaseField.FRESH_AT)

    @property
    def changes(self) -> int:
        """See `TableState`."""
        return self._counts.item(LeaseField.CHANGES)

    @property
    def map_number(self) -> int:
        """See `TableState`."""
        return self._counts.item(LeaseField.MAP)

    @property
    def has_lease(self) -> bool:
        """Whether it may be read now."""
        return self._times.item(LeaseField.VALID_UNTIL) > self.clock()

    def release(self) -> None:
        """Unmap what the cache has replaced, or all without a lease, so that it is freed.

        Maps nothing: a worker without lookups would keep each file that is replaced meanwhile.
        """
        with self._lock:
            is_current = self.has_lease and self._map == self._counts.item(LeaseField.MAP)
            if is_current or not self._arrays:
                return
            in_use: set[str] = set()
            if self.has_lease:
                with suppress(OSError, ValueError):  # as if no file were in use
                    files = self._files_in_use()
                    in_use = {*files.arrays, *(each.name for each in files.segments)}
            self._map, self._reader = 0, None
            self._arrays = {name: each for name, each in self._arrays.items() if name in in_use}
            self._segments = {name: each for name, each in self._segments.items() if name in in_use}

    def _files_in_use(self) -> CacheMap:
        """Raises OSError if the map cannot be read, ValueError for another content."""
        return CacheMap.decoded((self._folder / MAP_FILE).read_bytes())

    def _map_files(self) -> None:
        # The number before the map: if the map is newer, it is read again next time.
        number, self._reader = self._counts.item(LeaseField.MAP), None
        try:
            files = self._files_in_use()
            self._arrays = {
                name: self._arrays.get(name) or _mapped(self._folder / name)
                for name in files.arrays
            }
            self._segments = {
                each.name: self._segments.get(each.name) or self._rows(each.name)
                for each in files.segments
            }
            view = self._view(files)
        except FileNotFoundError:  # replaced meanwhile: the next lookup tries again
            return
        except (OSError, ValueError, pa.ArrowException) as error:
            # Such as too many open files, a limit of the address space, or damaged files.
            if not self._is_failing:
                _log.warning("lookups bypass the shared cache %s: %s", self._folder, error)
            self._is_failing = True
            return
        self._is_failing = False
        self._reader = self._reader_of(view, number)
        self._map = number

    def _reader_of(self, view: CacheView, number: int) -> EntryReader:
        if self.description.settings.mode is CacheMode.FULL:
            return FullReader(view, self, self._fence, number=number)
        return CacheReader(view, self._lifetimes, self._fence)

    def _view(self, files: CacheMap) -> CacheView:
        """The files as arrays; raises ValueError for sizes that are not those of the map."""
        segments = list(self._segments.values())
        starts = np.array([each.start for each in files.segments], np.uint32)
        sizes = np.array([each.num_rows for each in segments], np.uint32)
        mapped = [self._arrays[name] for name in files.arrays]
        places, hashes = np.frombuffer(mapped[0], np.int32), np.frombuffer(mapped[1], np.uint64)
        states, addresses = (np.frombuffer(each, np.uint32) for each in mapped[2:])
        lengths = [len(each) for each in (places, hashes, states, addresses)]
        is_power = not len(places) & (len(places) - 1)
        if not is_power or lengths != [files.lengths.places, *[files.lengths.slots] * 3]:
            found = ", ".join(map(str, lengths))
            raise ValueError(f"the arrays of a cache have impossible sizes: {found}")
        return CacheView(
            KeyTable(places, hashes),
            StateTable(states, files.tick_s, files.first_tick),
            RowTable(
                self.description.stored_schema,
                addresses,
                starts,
                starts + sizes,
                segments,
                [each.is_negative for each in files.segments],
            ),
        )

    def _rows(self, name: str) -> pa.RecordBatch:
        """The rows of a segment; raises ValueError or ArrowException for another content."""
        rows = pa.ipc.open_stream(pa.py_buffer(_mapped(self._folder / name))).read_next_batch()
        rows.validate()
        schema = self.description.stored_schema
        if HASH not in rows.schema.names or any(
            field.name not in schema.names or field.type != schema.field(field.name).type
            for field in rows.schema
        ):
            raise ValueError(f"{name} has no rows of this cache")
        return rows


class MappedCaches:
    """The caches of one sidecar, by folder; the caller protects it with a lock."""

    def __init__(self, url: str, *, clock: Callable[[], float]) -> None:
        """Folders may be relative to that of the sidecar's socket."""
        self._url = url
        self._clock = clock
        self.by_folder: dict[str, MappedCache] = {}

    def cache(self, folder: str) -> MappedCache | None:
        """The cache in a folder; None if it cannot be mapped, as in another container."""
        if folder not in self.by_folder:
            try:
                base = Path(endpoint_of(self._url).path or "/").parent
                self.by_folder[folder] = MappedCache(base / folder, clock=self._clock)
            except (OSError, ValueError) as error:
                _log.info("no shared cache of %s: %s", self._url, error)
                return None
        return self.by_folder[folder]

    def release(self, in_use: Collection[MappedCache | None]) -> None:
        """Unmap what the caches have replaced, and forget unused ones without a lease."""
        for folder, cache in [*self.by_folder.items()]:
            cache.release()
            if not cache.has_lease and cache not in in_use:  # its sidecar may have ended
                del self.by_folder[folder]


@dataclass(frozen=True, slots=True)
class ChannelCache:
    """The lookups of a channel in a shared cache."""

    cache: MappedCache
    lookup: CachedLookup

    def answers(self, keys: pa.RecordBatch) -> CachedAnswers | None:
        """The answers to keys; None without a lease."""
        reader = self.cache.reader()
        return None if reader is None else self.lookup.answers(reader, keys, self.cache.clock())


@dataclass(slots=True)
class CacheUses:
    """The lookups that a shared cache answered since the last report."""

    keys: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # {outcome: number}
    visited: list[Slots] = field(default_factory=list)
    visits: int = 0

    def add(self, found: CachedAnswers) -> None:
        """Count answers."""
        for answer in found.answers:
            if answer.size:
                self.keys[answer.outcomes.item(0)] += answer.size
        if len(found.visited):
            self.visited.append(found.visited)
            self.visits += len(found.visited)

    def frame(self, channel: int) -> frames.Cached:
        """The report."""
        visited = np.concatenate([_NO_SLOTS, *self.visited])[:_MAX_FRAME_VISITS]
        return frames.Cached(
            channel,
            hits=self.keys[Outcome.HIT],
            missing=self.keys[Outcome.MISSING],
            defaults=self.keys[Outcome.DEFAULT],
            visited=visited.astype("<i4").tobytes(),
        )


def _mapped(path: Path) -> mmap.mmap:
    file = os.open(path, os.O_RDONLY)
    try:
        return mmap.mmap(file, 0, prot=mmap.PROT_READ)
    finally:
        os.close(file)


def _time_namespace() -> int:
    """Its inode; 0 without one, as on older kernels."""
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0

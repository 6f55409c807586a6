"""Dimension cache: what a partial `RowCache` and a `FullTable` have in common."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import Gathered
from lookup_core.cache.cached_entries import CachedEntries
from lookup_core.cache.row_store import StoredRow
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.keys.canonical_keys import CanonicalKeys, SingleKey
from lookup_core.keys.key_index import Slots
from lookup_core.statistics import CacheStatistics

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Probe:
    """The cache's entries for n keys; elsewhere its values are undefined."""

    slots: Slots  # [n] for `rows`, where `is_row` or `is_stale`
    is_row: Mask  # [n] a fresh row
    is_missing: Mask  # [n] a fresh negative entry; of a full table, no row
    is_stale: Mask  # [n] an expired row that may be served stale
    ages_s: npt.NDArray[np.float64]  # [n] where one of the three
    ttl_s: npt.NDArray[np.float64]  # [n] the age at which the entry expires


class Hit(NamedTuple):
    """A fresh row; the dimension's columns are its last ones."""

    row: StoredRow
    age_s: float


class DimensionCache(Protocol):
    """Rows of one dimension by key; `now` is monotonic seconds throughout."""

    @property
    def takes_changed_rows(self) -> bool:
        """Whether changes bring rows in; otherwise they remove them, and queries read them."""

    @property
    def is_whole(self) -> bool:
        """Whether a key without an entry has no row; never of a partial cache."""

    @property
    def entries(self) -> CachedEntries:
        """The present entries, for reading."""

    @property
    def bytes(self) -> int:
        """Memory of rows, keys, index and slots."""

    def probe(self, keys: CanonicalKeys, now: float) -> Probe:
        """The entries of the keys; counts as a visit of their rows, where eviction needs visits."""

    def peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """The entries of the keys; counts as no visit."""

    def rows(self, slots: Slots, names: Sequence[str]) -> Gathered:
        """The rows in these slots of a probe, in the order of their storage."""

    def hit(self, key: SingleKey, now: float) -> Hit | None:
        """The fresh row of one key, if there is one; counts like `probe`."""

    def visit(self, slots: Slots) -> None:
        """Count a visit of each of these slots, as readers report them; others are ignored."""

    def fill(
        self,
        keys: CanonicalKeys,
        has_row: Mask,
        *,
        rows: pa.RecordBatch,
        read_at: float,
        now: float,
    ) -> None:
        """A query, read at `read_at`, has found `rows`: those of the keys that have one, in order.

        The keys are distinct. Readers in other processes may see the rows after `settle` only.
        """

    def settle(self, now: float) -> float | None:
        """Let readers in other processes see all rows, if that is due; returns the next time."""

    def apply(self, keys: CanonicalKeys, changes: RowChanges, now: float) -> int:
        """Apply changes of the rows with these keys, in order; returns the rows removed."""

    def confirm(self, reported_until: float) -> None:
        """All changes until then are reported."""

    def invalidate(self, keys: CanonicalKeys) -> int:
        """Remove what is known of the keys; returns how many were cached."""

    def clear(self) -> int:
        """Remove all entries; returns their number."""

    def set_max_bytes(self, max_bytes: int) -> None:
        """Set the bound of the memory."""

    def begin_move(self) -> None:
        """Store the arrays in the memory again; the rows follow."""

    def move_next(self) -> bool:
        """Store some rows in the memory again; false once all are stored."""

    def end_move(self) -> None:
        """Let readers in other processes use the cache."""

    def oldest_age_s(self, now: float) -> float | None:
        """The maximal staleness of an answer; None if there are no rows."""

    def statistics(self) -> CacheStatistics:
        """Levels and totals now."""

    def check_invariants(self) -> None:
        """For tests."""

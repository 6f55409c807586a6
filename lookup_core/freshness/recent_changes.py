"""The fence: which keys have changed so lately that a read may not have seen it.

A change can be told before its row is visible to others (while its commit waits for a standby,
say), so that who asks after it still reads the former row. What such a read brings answers who
asked, and must not be kept: it would stay. A read that was sent before the change was told is no
business of this: its flight is detached. The transaction snapshot of the read is the proof; where
there is none, time has to do.

The stale set is that of Nishtala et al.: "Scaling Memcache at Facebook", NSDI 2013; the proof is
`pg_visible_in_snapshot` of PostgreSQL, over columns.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_core.changelog.change import UNKNOWN_TRANSACTION
from lookup_core.freshness.table_fence import TableFence
from lookup_core.freshness.table_snapshot import TableSnapshot, TransactionIds
from lookup_core.keys.canonical_keys import Hashes
from lookup_core.keys.hash_membership import is_among

Mask = npt.NDArray[np.bool_]

_FEWEST = 1024  # places, which are doubled when they are needed
_PRUNED_EVERY_S = 1.0  # it is a look at all changes
_FOLDED_SHARE = 8  # of the capacity: room for many at once, as each time moves all others
_COLUMNS: dict[str, npt.DTypeLike] = {
    "hash": np.uint64,
    "transaction_id": np.uint32,
    "noted_at": np.float64,
    "seen_at": np.float64,  # when a read landed that saw it; infinite till then
}


class RecentChanges:
    """Changes of keys by hash, the oldest first; `now` is monotonic seconds.

    One is remembered until a read has seen it, and for `age_s` more: so long may other reads have
    been on their way, or another standby may lag. What no snapshot can prove counts as visible to
    reads that are sent `hold_off_s` after it was told. Of more than `capacity` changes the oldest
    count for the whole table.
    """

    def __init__(
        self, *, age_s: float = 60.0, hold_off_s: float = 5.0, capacity: int = 2**18
    ) -> None:
        self._age_s = age_s
        self._hold_off_s = hold_off_s
        self._capacity = capacity
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(min(_FEWEST, capacity), kind) for name, kind in _COLUMNS.items()
        }
        self._count = 0
        self._table = TableFence(age_s=age_s, hold_off_s=hold_off_s)
        self._pruned_at = -np.inf

    def __len__(self) -> int:
        """How many changes of single keys are remembered."""
        return self._count

    @property
    def bytes(self) -> int:
        """What is held in memory."""
        return sum(column.nbytes for column in self._columns.values())

    def note(self, hashes: Hashes, transaction_ids: TransactionIds, now: float) -> None:
        """Rows of these keys were changed by these transactions, or by UNKNOWN_TRANSACTION."""
        surplus = max(len(hashes) - self._capacity, 0)
        self._table.fold(transaction_ids[:surplus], now)
        self._make_room(len(hashes) - surplus)
        news = slice(self._count, self._count + len(hashes) - surplus)
        self._columns["hash"][news] = hashes[surplus:]
        self._columns["transaction_id"][news] = transaction_ids[surplus:]
        self._columns["noted_at"][news] = now
        self._columns["seen_at"][news] = np.inf
        self._count = news.stop

    def note_table(self, transaction_id: int, now: float) -> None:
        """Any row may have been changed by this transaction, or by UNKNOWN_TRANSACTION."""
        self._table.note(transaction_id, now)

    def admits(
        self, hashes: Hashes, snapshot: TableSnapshot | None, *, sent_at: float, now: float
    ) -> Mask:
        """Of which of these keys a read saw all changes; it was sent then, and has landed now."""
        if now >= self._pruned_at + _PRUNED_EVERY_S:
            self._prune(snapshot, sent_at=sent_at, now=now)
        if not self._table.admits(snapshot, sent_at=sent_at, now=now):
            return np.zeros(len(hashes), np.bool_)
        noted = self._column("hash")
        touched = np.flatnonzero(is_among(noted, hashes))
        unseen = touched[~self._is_visible(touched, snapshot, sent_at)]
        return ~np.isin(hashes, noted[unseen])

    def settled_from(self, now: float) -> float:
        """From when on a read counts as one that saw what may have changed anything."""
        return self._table.settled_from(now)

    def unseen(
        self, snapshot: TableSnapshot | None, *, sent_at: float, now: float
    ) -> Hashes | None:
        """The keys with changes that such a read did not see; None if those may be any."""
        if not self._table.admits(snapshot, sent_at=sent_at, now=now):
            return None
        every = np.arange(self._count)
        return np.asarray(self._column("hash")[~self._is_visible(every, snapshot, sent_at)])

    def check_invariants(self) -> None:
        """For tests: no more than may be, in the order in which they were told."""
        assert self._count <= len(self._columns["hash"]) <= self._capacity
        assert (np.diff(self._column("noted_at")) >= 0).all()

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name][: self._count]

    def _is_visible(
        self, places: npt.NDArray[np.intp], snapshot: TableSnapshot | None, sent_at: float
    ) -> Mask:
        is_settled = self._column("noted_at")[places] + self._hold_off_s <= sent_at
        if snapshot is None:
            return np.asarray(is_settled)
        ids = self._column("transaction_id")[places]
        return np.where(ids == UNKNOWN_TRANSACTION, is_settled, snapshot.sees(ids))

    def _prune(self, snapshot: TableSnapshot | None, *, sent_at: float, now: float) -> None:
        self._pruned_at = now
        seen_at = self._column("seen_at")
        unseen = np.flatnonzero(seen_at == np.inf)
        seen_at[unseen[self._is_visible(unseen, snapshot, sent_at)]] = now
        self._keep(np.flatnonzero(seen_at + self._age_s > now))

    def _make_room(self, count: int) -> None:
        surplus = self._count + count - self._capacity
        if surplus > 0:
            folded = min(max(surplus, self._capacity // _FOLDED_SHARE), self._count)
            ids, noted_at = self._column("transaction_id"), self._column("noted_at")
            self._table.fold(ids[:folded], float(noted_at[folded - 1]))
            self._keep(np.arange(folded, self._count))
        places = len(self._columns["hash"])
        needed = self._count + count
        if needed > places:
            more = min(max(2 * places, needed), self._capacity) - places
            for name, column in self._columns.items():
                self._columns[name] = np.concatenate((column, np.zeros(more, column.dtype)))

    def _keep(self, places: npt.NDArray[np.intp]) -> None:
        if len(places) == self._count:
            return
        for column in self._columns.values():
            column[: len(places)] = column[places]
        self._count = len(places)

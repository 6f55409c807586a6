"""Change fence: keeps an older read from overwriting a newer invalidation.

Compares recent changes with the snapshots of reads.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot, TransactionIds
from lookup_core.keys.canonical_keys import Hashes, is_among

Mask = npt.NDArray[np.bool_]

_LONG_AGO = -np.inf
_LOW_HALF = 0xFFFFFFFF
_ID_S = 12 * 3600.0  # an id is kept after its change: 32-bit ids do not wrap around before
_KEPT_AGES = 1.5  # a read that a change may refute takes half of the age at most
_MAX_LISTED = 64  # older ones are folded into a range
_MIN_PLACES = 1024  # doubled on demand
_PRUNED_EVERY_S = 1.0  # pruning reads all changes
_FOLDED_PARTS = 8  # one of them is folded at once, as all other changes are moved
_COLUMNS: dict[str, npt.DTypeLike] = {
    "hash": np.uint64,
    "transaction_id": np.uint32,
    "noted_at": np.float64,
    "seen_at": np.float64,  # the end of the first read that saw it, else infinite
}


class RecentChanges:
    """Changes of keys by hash, the oldest first; `now` is monotonic seconds.

    A change is kept until a read has seen it, and 1.5 `age_s` longer, as reads under way take half
    of `age_s` at most. The latest one that was dropped must be in comparable snapshots, too: a
    standby may lag by more. Without a snapshot, or with one of a FOREIGN system, a change counts as
    visible to reads sent `hold_off_s` after its report. While the relation of ids is UNKNOWN, the
    snapshot must show it as well, for `age_s`. Beyond `capacity` changes the oldest count as
    changes of any row.
    """

    def __init__(
        self, *, age_s: float = 60.0, hold_off_s: float = 5.0, capacity: int = 2**18
    ) -> None:
        self._age_s = age_s
        self._hold_off_s = hold_off_s
        self._capacity = capacity
        self._columns: dict[str, npt.NDArray[Any]] = {
            name: np.zeros(min(_MIN_PLACES, capacity), kind) for name, kind in _COLUMNS.items()
        }
        self._count = 0
        self._is_in_use = False  # a change was noted
        self._relation = IdRelation.UNKNOWN
        self._pruned_at = -np.inf
        self._outdated_end: int | None = None
        self._dropped = DroppedIds()
        self.table = TableFence(self._dropped, age_s=age_s, hold_off_s=hold_off_s)

    def __len__(self) -> int:
        """The number of changes of single keys."""
        return self._count

    @property
    def bytes(self) -> int:
        """Memory in bytes."""
        return sum(column.nbytes for column in self._columns.values())

    def relate(self, relation: IdRelation) -> None:
        """Set whether the ids of changes and of snapshots are of one system."""
        self._relation = self.table.relation = relation

    def forget_ids(self, now: float) -> None:
        """Count all changes as reported now, without a transaction: reads have another history."""
        self._outdated_end = None
        self._dropped.forget()
        self._column("transaction_id")[:] = UNKNOWN_TRANSACTION
        self._column("noted_at")[:] = now
        self._column("seen_at")[:] = np.inf
        self.table.forget_ids(now)

    def note(self, hashes: Hashes, transaction_ids: TransactionIds, now: float) -> None:
        """Record changes of keys by these transactions, or by UNKNOWN_TRANSACTION."""
        self._is_in_use = True
        surplus = max(len(hashes) - self._capacity, 0)
        self.table.fold(transaction_ids[:surplus], now)
        self._make_room(len(hashes) - surplus)
        news = slice(self._count, self._count + len(hashes) - surplus)
        self._columns["hash"][news] = hashes[surplus:]
        self._columns["transaction_id"][news] = transaction_ids[surplus:]
        self._columns["noted_at"][news] = now
        self._columns["seen_at"][news] = np.inf
        self._count = news.stop

    def note_table(self, transaction_id: int, now: float, *, is_gap: bool = False) -> None:
        """Record a transaction, or UNKNOWN_TRANSACTION, that may have changed any row.

        For a gap, it is the last one of a snapshot; any that had ended by then may have done so.
        """
        self._is_in_use = True
        if not self.are_outdated(np.array([transaction_id], np.uint32))[0]:
            self._outdated_end = transaction_id or self._outdated_end
        if is_gap and transaction_id != UNKNOWN_TRANSACTION:
            self.table.note_gap(transaction_id, now)
        else:
            self.table.note(transaction_id, now)

    def note_load(self, snapshot: TableSnapshot | None) -> None:
        """Record the snapshot of a load of the whole table."""
        if snapshot is not None:
            self._outdated_end = snapshot.xmax & _LOW_HALF

    def are_outdated(self, transaction_ids: TransactionIds) -> Mask:
        """Which transactions began before the last load, or before a later change of any row."""
        if self._outdated_end is None:
            return np.zeros(len(transaction_ids), np.bool_)
        distance = (transaction_ids - np.uint32(self._outdated_end)).astype(np.int32)
        return (distance < 0) & (transaction_ids != UNKNOWN_TRANSACTION)

    def admits(
        self, hashes: Hashes, snapshot: TableSnapshot | None, *, sent_at: float, now: float
    ) -> Mask:
        """Of which keys a read, sent at `sent_at` and ended now, saw all changes."""
        if not self._is_in_use:
            return np.ones(len(hashes), np.bool_)
        if now >= self._pruned_at + _PRUNED_EVERY_S:
            self._prune(snapshot, sent_at=sent_at, now=now)
        if not self._is_current(snapshot, sent_at=sent_at, now=now):
            return np.zeros(len(hashes), np.bool_)
        noted = self._column("hash")
        touched = np.flatnonzero(is_among(noted, hashes))
        unseen = touched[~self._is_visible(touched, snapshot, sent_at)]
        return ~np.isin(hashes, noted[unseen])

    def proves(
        self, hashes: Hashes, snapshot: TableSnapshot | None, *, sent_at: float, now: float
    ) -> Mask:
        """Of which keys a read, as above, is a proof against other rows.

        A hold-off is none: without comparable ids, no change of the key is younger than `age_s`;
        nor is one of any row, unless the snapshot is of a primary.
        """
        is_proof = self.admits(hashes, snapshot, sent_at=sent_at, now=now)
        if not self.table.is_proof(snapshot, sent_at=sent_at):
            return np.zeros(len(hashes), np.bool_)
        is_recent = self._column("noted_at") + self._age_s > sent_at
        if snapshot is not None and self._relation is IdRelation.COMPARABLE:
            is_recent &= self._column("transaction_id") == UNKNOWN_TRANSACTION
        return is_proof & ~is_among(hashes, self._column("hash")[is_recent])

    def proved_after_s(self) -> float:
        """How long after a change a read can be a proof, as above."""
        return 0.0 if self._relation is IdRelation.COMPARABLE else self._age_s

    def unseen(
        self, snapshot: TableSnapshot | None, *, sent_at: float, now: float
    ) -> Hashes | None:
        """The keys with changes that such a read did not see; None if that may be any key."""
        if not self._is_current(snapshot, sent_at=sent_at, now=now):
            return None
        every = np.arange(self._count)
        return np.asarray(self._column("hash")[~self._is_visible(every, snapshot, sent_at)])

    def check_invariants(self) -> None:
        """For tests: within the capacity, in the order of their report."""
        assert self._count <= len(self._columns["hash"]) <= self._capacity
        assert (np.diff(self._column("noted_at")) >= 0).all()

    def _column(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name][: self._count]

    def _is_visible(
        self, places: npt.NDArray[np.intp], snapshot: TableSnapshot | None, sent_at: float
    ) -> Mask:
        noted_at = self._column("noted_at")[places]
        is_settled = noted_at + self._hold_off_s <= sent_at
        if snapshot is None or self._relation is IdRelation.FOREIGN:
            return np.asarray(is_settled)
        ids = self._column("transaction_id")[places]
        is_seen = snapshot.sees(ids)
        if self._relation is IdRelation.UNKNOWN:
            is_seen = is_settled & (is_seen | (noted_at + self._age_s <= sent_at))
        return np.where(ids == UNKNOWN_TRANSACTION, is_settled, is_seen)

    def _prune(self, snapshot: TableSnapshot | None, *, sent_at: float, now: float) -> None:
        self._pruned_at = now
        seen_at = self._column("seen_at")
        unseen = np.flatnonzero(seen_at == np.inf)
        seen_at[unseen[self._is_visible(unseen, snapshot, sent_at)]] = now
        is_kept = seen_at + _KEPT_AGES * self._age_s > now
        self._dropped.note(self._column("transaction_id")[~is_kept], now)
        self._dropped.on_read(snapshot)
        self._keep(np.flatnonzero(is_kept))

    def _is_current(self, snapshot: TableSnapshot | None, *, sent_at: float, now: float) -> bool:
        """Whether a read saw all changes that may be of any key, and all that were dropped."""
        is_of_late_standby = not self._dropped.are_seen(snapshot, self._relation, now)
        return not is_of_late_standby and self.table.admits(snapshot, sent_at=sent_at, now=now)

    def _make_room(self, count: int) -> None:
        surplus = self._count + count - self._capacity
        if surplus > 0:
            folded = min(max(surplus, self._capacity // _FOLDED_PARTS), self._count)
            ids, noted_at = self._column("transaction_id"), self._column("noted_at")
            self.table.fold(ids[:folded], float(noted_at[folded - 1]))
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


class DroppedIds:
    """The latest transaction that is not kept any more; `now` is monotonic seconds."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """No id is known: reads have another history."""
        self._latest_id: int | None = None
        self._noted_at = _LONG_AGO
        self._later_id: int | None = None  # this one, and all after it, ended later

    def note(self, transaction_ids: TransactionIds, now: float) -> None:
        """These are dropped now; some may be UNKNOWN_TRANSACTION."""
        ids = transaction_ids[transaction_ids != UNKNOWN_TRANSACTION]
        if len(ids):
            self._latest_id, self._noted_at = _latest(ids, self._known(now)), now
            self._later_id = None

    def on_read(self, snapshot: TableSnapshot | None) -> None:
        """A read landed: one of the primary shows which transactions have not ended yet."""
        if snapshot is not None and not snapshot.is_of_standby and self._later_id is None:
            self._later_id = snapshot.xmax

    def are_seen(self, snapshot: TableSnapshot | None, relation: IdRelation, now: float) -> bool:
        """Whether a read saw them, which that of a late standby did not.

        True without comparable ids.
        """
        latest_id = self._known(now)
        if snapshot is None or latest_id is None or relation is not IdRelation.COMPARABLE:
            return True
        return snapshot.is_past(latest_id, self._later_id)

    def _known(self, now: float) -> int | None:
        return self._latest_id if now < self._noted_at + _ID_S else None


class TableFence:
    """Changes that may be of any key; `now` is monotonic seconds.

    The latest transactions are listed; older ones are folded into a range of ids, all of which a
    snapshot must show. Changes without a transaction count as visible to reads sent `hold_off_s`
    after their report; so do all, or in addition, by the relation of ids, as in `RecentChanges`.
    List and range are dropped `age_s` after the end of a read that saw them all.
    """

    def __init__(self, dropped: DroppedIds, *, age_s: float, hold_off_s: float) -> None:
        self._dropped = dropped
        self._age_s = age_s
        self._hold_off_s = hold_off_s
        self.relation = IdRelation.UNKNOWN
        self._folded: tuple[int, int] | None = None  # the first and the last id
        self._listed: TransactionIds = np.zeros(0, np.uint32)  # the oldest first
        self._gap_id: int | None = None  # that of the latest gap
        self._gap_at = _LONG_AGO
        self._latest_at = _LONG_AGO
        self._latest_unknown_at = _LONG_AGO
        self._passed_at = np.inf

    def forget_ids(self, now: float) -> None:
        """Count all changes as reported now, without a transaction."""
        if self._latest_at != _LONG_AGO:
            self._folded, self._listed, self._gap_id = None, self._listed[:0], None
            self.note(UNKNOWN_TRANSACTION, now)

    def note(self, transaction_id: int, noted_at: float) -> None:
        """Record a transaction, or UNKNOWN_TRANSACTION, that may have changed any row."""
        self._begin(noted_at)
        if transaction_id == UNKNOWN_TRANSACTION:
            self._latest_unknown_at = max(self._latest_unknown_at, noted_at)
            return
        self._listed = np.append(self._listed, np.uint32(transaction_id))
        self.fold(self._listed[:-_MAX_LISTED], noted_at)
        self._listed = self._listed[-_MAX_LISTED:]

    def note_gap(self, transaction_id: int, noted_at: float) -> None:
        """Record the last transaction of a snapshot; any that had ended may have changed rows."""
        self._begin(noted_at)
        self._gap_id = _latest(np.array([transaction_id], np.uint32), self._gap_id)
        self._gap_at = noted_at

    def fold(self, transaction_ids: TransactionIds, noted_at: float) -> None:
        """Extend the range to these transactions; some may be UNKNOWN_TRANSACTION."""
        if not len(transaction_ids):
            return
        self._begin(noted_at)
        is_unknown = transaction_ids == UNKNOWN_TRANSACTION
        if is_unknown.any():
            self._latest_unknown_at = max(self._latest_unknown_at, noted_at)
        if not is_unknown.all():
            ids = np.append(transaction_ids[~is_unknown], np.array(self._folded or (), np.uint32))
            self._folded = _earliest(ids), _latest(ids, None)

    def admits(self, snapshot: TableSnapshot | None, *, sent_at: float, now: float) -> bool:
        """Whether a read that was sent then, and ended now, saw all of them."""
        if not self._is_behind(snapshot, sent_at):
            return False
        if self._passed_at + self._age_s <= now:
            former = [*self._listed, *(self._folded or ())]
            self._dropped.note(np.array(former, np.uint32), now)
            self._dropped.on_read(snapshot)
            self._folded, self._listed = None, self._listed[:0]
        self._passed_at = min(self._passed_at, now)
        return True

    def is_proof(self, snapshot: TableSnapshot | None, *, sent_at: float) -> bool:
        """Whether such a read, which is admitted, proves rows, as in `RecentChanges`."""
        if snapshot is not None and not snapshot.is_of_standby:
            return True
        has_ids = snapshot is not None and self.relation is IdRelation.COMPARABLE
        latest_at = self._latest_unknown_at if has_ids else self._latest_at
        return latest_at + self._age_s <= sent_at

    def settled_from(self, now: float) -> float:
        """From when on a read may see all of them; `now` if all are proved by their ids."""
        is_proof = self.relation is IdRelation.COMPARABLE
        return max(
            now, (self._latest_unknown_at if is_proof else self._latest_at) + self._hold_off_s
        )

    def _is_behind(self, snapshot: TableSnapshot | None, sent_at: float) -> bool:
        is_settled = self._latest_at + self._hold_off_s <= sent_at
        if snapshot is None or self.relation is IdRelation.FOREIGN:
            return is_settled
        is_beyond = self._folded is None or snapshot.sees_all(*self._folded)
        is_beyond = is_beyond and bool(snapshot.sees(self._listed).all())
        is_beyond = is_beyond and self._is_past_gap(snapshot, sent_at)
        if self.relation is IdRelation.UNKNOWN:
            return is_settled and (is_beyond or self._latest_at + self._age_s <= sent_at)
        return is_beyond and self._latest_unknown_at + self._hold_off_s <= sent_at

    def _is_past_gap(self, snapshot: TableSnapshot, sent_at: float) -> bool:
        if self._gap_id is None or self._gap_at + _ID_S <= sent_at:
            return True
        return snapshot.is_past(self._gap_id, self._gap_id + 1)

    def _begin(self, noted_at: float) -> None:
        self._latest_at = max(self._latest_at, noted_at)
        self._passed_at = np.inf


def _earliest(transaction_ids: TransactionIds) -> int:
    """The earliest of these ids, in 32 bits."""
    distance = (transaction_ids - transaction_ids[0]).astype(np.int32)
    return (int(transaction_ids[0]) + int(distance.min())) & _LOW_HALF


def _latest(transaction_ids: TransactionIds, former: int | None) -> int:
    """The latest of these ids and a former one, in 32 bits; some follow it in another order."""
    start = int(transaction_ids[0]) if former is None else former
    distance = (transaction_ids - np.uint32(start)).astype(np.int32)
    return (start + max(int(distance.max()), 0)) & _LOW_HALF

"""Changes that may have touched any row of a table: a few by name, the others as one line.

A read has to see the ones, and to be beyond the other, which a transaction that stays open can
hold up. Changes of single keys that are known stand in `recent_changes`.
"""

import numpy as np

from lookup_core.changelog.change import UNKNOWN_TRANSACTION
from lookup_core.freshness.table_snapshot import TableSnapshot, TransactionIds

_NEVER = -np.inf
_MOST_LISTED = 64  # the oldest of more count for the line


class TableFence:
    """The latest of such changes; `now` is monotonic seconds.

    What no snapshot can prove counts as visible to reads that are sent `hold_off_s` after it was
    told. The line goes `age_s` after a read that was beyond it has landed.
    """

    def __init__(self, *, age_s: float, hold_off_s: float) -> None:
        self._age_s = age_s
        self._hold_off_s = hold_off_s
        self._latest_id: int | None = None  # of the line
        self._listed: TransactionIds = np.zeros(0, np.uint32)  # the oldest first
        self._latest_at = _NEVER
        self._latest_unknown_at = _NEVER
        self._passed_at = np.inf

    def note(self, transaction_id: int, noted_at: float) -> None:
        """Anything may have been changed by this transaction, or by UNKNOWN_TRANSACTION."""
        self._begin(noted_at)
        if transaction_id == UNKNOWN_TRANSACTION:
            self._latest_unknown_at = max(self._latest_unknown_at, noted_at)
            return
        self._listed = np.append(self._listed, np.uint32(transaction_id))
        self.fold(self._listed[:-_MOST_LISTED], noted_at)
        self._listed = self._listed[-_MOST_LISTED:]

    def fold(self, transaction_ids: TransactionIds, noted_at: float) -> None:
        """So many have changed something that it counts as anything; some may be unknown."""
        if not len(transaction_ids):
            return
        self._begin(noted_at)
        is_unknown = transaction_ids == UNKNOWN_TRANSACTION
        if is_unknown.any():
            self._latest_unknown_at = max(self._latest_unknown_at, noted_at)
        if not is_unknown.all():
            self._latest_id = self._latest_of(transaction_ids[~is_unknown])

    def admits(self, snapshot: TableSnapshot | None, *, sent_at: float, now: float) -> bool:
        """Whether a read that was sent then, and has landed now, saw all of them."""
        if not self._is_behind(snapshot, sent_at):
            return False
        if self._passed_at + self._age_s <= now:
            # Before they lie in the future again, of 32 bits.
            self._latest_id, self._listed = None, self._listed[:0]
        self._passed_at = min(self._passed_at, now)
        return True

    def settled_from(self, now: float) -> float:
        """From when on a read may be sent that counts; `now`, where nothing is in doubt."""
        return max(now, self._latest_unknown_at + self._hold_off_s)

    def _is_behind(self, snapshot: TableSnapshot | None, sent_at: float) -> bool:
        if snapshot is None:
            return self._latest_at + self._hold_off_s <= sent_at
        is_beyond = self._latest_id is None or snapshot.is_beyond(self._latest_id)
        is_beyond = is_beyond and bool(snapshot.sees(self._listed).all())
        return is_beyond and self._latest_unknown_at + self._hold_off_s <= sent_at

    def _begin(self, noted_at: float) -> None:
        self._latest_at = max(self._latest_at, noted_at)
        self._passed_at = np.inf

    def _latest_of(self, transaction_ids: TransactionIds) -> int:
        start = int(transaction_ids[0]) if self._latest_id is None else self._latest_id
        distance = (transaction_ids - np.uint32(start)).astype(np.int32)
        return (start + max(int(distance.max()), 0)) & 0xFFFFFFFF

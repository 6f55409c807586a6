"""Changes that may have touched any row of a table, as one line that a read has to be beyond.

Changes of single keys that are known stand in `recent_changes`.
"""

import numpy as np

from lookup_core.changelog.change import UNKNOWN_TRANSACTION
from lookup_core.freshness.table_snapshot import TableSnapshot, TransactionIds

_NEVER = -np.inf


class TableFence:
    """The latest of such changes; `now` is monotonic seconds.

    What no snapshot can prove counts as visible to reads that are sent `hold_off_s` after it was
    told. The line goes `age_s` after a read that was beyond it has landed.
    """

    def __init__(self, *, age_s: float, hold_off_s: float) -> None:
        self._age_s = age_s
        self._hold_off_s = hold_off_s
        self._latest_id: int | None = None  # of those that are known
        self._latest_at = _NEVER
        self._latest_unknown_at = _NEVER
        self._passed_at = np.inf

    def note(self, transaction_ids: TransactionIds, noted_at: float) -> None:
        """These transactions may have changed anything; UNKNOWN_TRANSACTION may be among them."""
        if not len(transaction_ids):
            return
        self._latest_at = max(self._latest_at, noted_at)
        self._passed_at = np.inf
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
            self._latest_id = None  # before it lies in the future again, of 32 bits
        self._passed_at = min(self._passed_at, now)
        return True

    def settled_from(self, now: float) -> float:
        """From when on a read may be sent that counts; `now`, where nothing is in doubt."""
        return max(now, self._latest_unknown_at + self._hold_off_s)

    def _is_behind(self, snapshot: TableSnapshot | None, sent_at: float) -> bool:
        if snapshot is None:
            return self._latest_at + self._hold_off_s <= sent_at
        is_beyond = self._latest_id is None or snapshot.is_beyond(self._latest_id)
        return is_beyond and self._latest_unknown_at + self._hold_off_s <= sent_at

    def _latest_of(self, transaction_ids: TransactionIds) -> int:
        start = int(transaction_ids[0]) if self._latest_id is None else self._latest_id
        distance = (transaction_ids - np.uint32(start)).astype(np.int32)
        return (start + max(int(distance.max()), 0)) & 0xFFFFFFFF

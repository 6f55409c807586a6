"""Snapshot visibility: the transactions that a read of PostgreSQL saw.

Ids are compared in 32 bits, as in PostgreSQL: correct within 2**31 transactions of the read.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt

TransactionIds = npt.NDArray[np.uint32]


class IdRelation(Enum):
    """Whether ids of reported changes and ids of snapshots are of one system."""

    COMPARABLE = "comparable"
    UNKNOWN = "unknown"
    FOREIGN = "foreign"  # equal ids are different transactions


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A statement sees all ids below `xmin`, none from `xmax` on, and none `in_progress`.

    A standby does not list those in progress: there, no id from `xmin` on counts as seen.
    """

    xmin: int
    xmax: int
    in_progress: TransactionIds
    is_of_standby: bool = False

    @classmethod
    def parse(cls, text: str, *, is_of_standby: bool = False) -> "TableSnapshot":
        """Parse `pg_current_snapshot()::text`: `xmin:xmax:xid,xid,…` in 64 bits."""
        xmin, xmax, listed = text.split(":")
        ids = [int(each) & 0xFFFFFFFF for each in listed.split(",") if each]
        return cls(int(xmin), int(xmax), np.array(ids, np.uint32), is_of_standby)

    def sees(self, transaction_ids: TransactionIds) -> npt.NDArray[np.bool_]:
        """Which of these committed transactions the read saw."""
        end = self.xmin if self.is_of_standby else self.xmax
        is_before = _distance(transaction_ids, end) < 0
        return is_before & ~np.isin(transaction_ids, self.in_progress)

    def is_past(self, transaction_id: int, later_id: int | None) -> bool:
        """Whether the read saw this transaction; the ids from `later_id` on ended after it.

        A standby does not list those in progress: while an older one runs, its snapshot does not
        show this one. It saw it if one of the later ids had ended there.
        """
        if self.sees(_short(transaction_id))[0]:
            return True
        if later_id is None or not self.is_of_standby:
            return False
        return bool(_distance(_short(later_id), self.xmax)[0] < 0)

    def sees_all(self, first: int, last: int) -> bool:
        """Whether the read saw all committed transactions from the first to the last id."""
        is_within = (_distance(self.in_progress, first) >= 0) & (
            _distance(self.in_progress, last) <= 0
        )
        return bool(self.sees(_short(last))[0]) and not is_within.any()


def _short(transaction_id: int) -> TransactionIds:
    return np.array([transaction_id & 0xFFFFFFFF], np.uint32)


def _distance(transaction_ids: TransactionIds, start: int) -> npt.NDArray[np.int32]:
    return (transaction_ids - np.uint32(start & 0xFFFFFFFF)).astype(np.int32)

"""A table with the transactions of PostgreSQL, in memory.

A commit is in the log, where it may be reported, before its rows are visible. A standby replays the
log at its own pace. The rows of an open transaction are locked for others.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from lookup_core.freshness.table_snapshot import TableSnapshot

FIRST_ID = 2**33 - 4  # the low 32 bits wrap soon


@dataclass(slots=True)
class Transaction:
    """A transaction that has written; its states follow in this order."""

    id: int
    keys: Sequence[int]
    is_logged: bool = False
    is_visible: bool = False
    is_replayed: bool = False
    is_reported: bool = False


@dataclass(slots=True)
class TransactionalTable:
    """Versions of rows by key; version 0 is as old as the table."""

    keys: Sequence[int]
    transactions: list[Transaction] = field(default_factory=list)  # by id
    log: list[Transaction] = field(default_factory=list)  # in the order of their commits

    def free_keys(self) -> list[int]:
        """The keys that no open transaction has written."""
        locked = {key for each in self.transactions if not each.is_visible for key in each.keys}
        return [key for key in self.keys if key not in locked]

    def write(self, keys: Sequence[int]) -> None:
        """A transaction writes free keys."""
        self.transactions.append(Transaction(FIRST_ID + len(self.transactions), keys))

    def commit(self, transaction: Transaction) -> None:
        """Put it into the log; its rows are not visible yet."""
        transaction.is_logged = True
        self.log.append(transaction)

    def replay(self) -> None:
        """Make the next transaction of the log visible on the standby."""
        next(each for each in self.log if not each.is_replayed).is_replayed = True

    def version(self, key: int, *, of_standby: bool) -> int:
        """The version that a read finds now: the id of a transaction, or 0."""
        ids = [each.id for each in self._seen(of_standby=of_standby) if key in each.keys]
        return max(ids, default=0)

    def reported_version(self, key: int) -> int:
        """The latest version that was reported."""
        return max(
            (each.id for each in self.transactions if each.is_reported and key in each.keys),
            default=0,
        )

    def snapshot(self, *, of_standby: bool) -> TableSnapshot:
        """The snapshot of a read that starts now."""
        seen = {each.id for each in self._seen(of_standby=of_standby)}
        unseen = [each.id for each in self.transactions if each.id not in seen]
        end = FIRST_ID + len(self.transactions)
        xmax = max(seen, default=FIRST_ID - 1) + 1
        listed = [] if of_standby else [each % 2**32 for each in unseen if each < xmax]
        ids = np.array(listed, np.uint32)
        return TableSnapshot(min([*unseen, xmax, end]), xmax, ids, of_standby)

    def _seen(self, *, of_standby: bool) -> list[Transaction]:
        if of_standby:
            return [each for each in self.transactions if each.is_replayed]
        return [each for each in self.transactions if each.is_visible]

"""A table with a log, and a connector that reports it as Debezium does.

A row is its version: a number that grows with every change of any row.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain, repeat

from tests.lookup_core.changelog.change_messages import Message, message

MINUTE_MS = 60_000
_RECORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class Written:
    """A record of the log for one row."""

    key: int
    version: int
    lsn: int
    is_deletion: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A committed transaction in the log."""

    written: tuple[Written, ...]
    lsn: int  # of its end
    time_ms: int


@dataclass(slots=True)
class LoggedTable:
    """Transactions of one table, which lock their rows until they commit."""

    first_lsn: int = 1000
    time_ms: int = MINUTE_MS
    version: int = 0
    log: list[Ended] = field(default_factory=list)
    open: list[list[Written]] = field(default_factory=list)
    _lsn: int = field(init=False)

    def __post_init__(self) -> None:
        """Start the log."""
        self._lsn = self.first_lsn

    def free_keys(self, keys: Iterable[int]) -> list[int]:
        """The keys that no open transaction locks."""
        held = {each.key for transaction in self.open for each in transaction}
        return [key for key in keys if key not in held]

    def begin(self) -> list[Written]:
        """Begin a transaction."""
        self.open.append([])
        return self.open[-1]

    def write(
        self, transaction: list[Written], keys: Iterable[int], *, is_deletion: bool = False
    ) -> None:
        """Write the rows of these keys in one record of the log."""
        self._lsn += _RECORD_BYTES
        for key in keys:
            self.version += 1
            transaction.append(Written(key, self.version, self._lsn, is_deletion))

    def commit(self, transaction: list[Written]) -> None:
        """Commit the transaction; time advances."""
        self.open.remove(transaction)
        self._lsn += _RECORD_BYTES
        self.time_ms += 1
        self.log.append(Ended(tuple(transaction), self._lsn, self.time_ms))

    @property
    def rows(self) -> dict[int, Written]:
        """The newest record of each key."""
        return {each.key: each for ended in self.log for each in ended.written}


@dataclass(slots=True)
class LogConnector:
    """Reports a log from a place on, which may be set back."""

    table: LoggedTable
    place: int = 0  # how many transactions are reported
    earliest: int = 0  # place that it can go back to
    _last_end: int | None = None  # of a reported transaction

    def report(self) -> list[Message]:
        """The messages of the next transaction, if there is one."""
        if self.place == len(self.table.log):
            return []
        ended = self.table.log[self.place]
        messages = [self._event(each, ended) for each in ended.written]
        self.place += 1
        self._last_end = ended.lsn
        return messages

    def restart(self, place: int) -> None:
        """Restart at a former place."""
        self.place = place
        self._last_end = self.table.log[place - 1].lsn if place else None

    def read(self, *, kinds: Iterable[str] = ()) -> list[Message]:
        """All rows behind the reported transactions, as in an incremental snapshot."""
        end = str(self._last_end or self.table.first_lsn)
        source = self._source(self.table.time_ms, f'[null,"{end}"]')
        rows = [each for each in self.table.rows.values() if not each.is_deletion]
        kind_of = chain(kinds, repeat("incremental"))
        return [
            _message(each, {"op": "r", "after": _row(each), "source": {**source, "snapshot": kind}})
            for each, kind in zip(rows, kind_of, strict=False)
        ]

    def lose_place(self) -> list[Message]:
        """Skip all unreported transactions and read all rows."""
        self.place = self.earliest = len(self.table.log)
        self._last_end = self.table.log[-1].lsn if self.table.log else None
        return self.read(kinds=chain(["first"], repeat("true")))

    def _event(self, written: Written, ended: Ended) -> Message:
        last_end = "null" if self._last_end is None else f'"{self._last_end}"'
        source = self._source(ended.time_ms, f'[{last_end},"{written.lsn}"]')
        operation, after = ("d", None) if written.is_deletion else ("u", _row(written))
        return _message(written, {"op": operation, "after": after, "source": source})

    def _source(self, time_ms: int, sequence: str) -> dict[str, object]:
        return {"schema": "public", "table": "t", "ts_ms": time_ms, "sequence": sequence}


def _row(written: Written) -> dict[str, int]:
    return {"id": written.key, "version": written.version}


def _message(written: Written, event: dict[str, object]) -> Message:
    return message({"id": written.key}, event, timestamp=written.version)

"""Change decoder contract: messages in, row and table changes out, and the filter for replays."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.changelog.event_origin import EventOrigins, EventSenders
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.row_bytes import ROW_BYTES

Mask = npt.NDArray[np.bool_]

UNKNOWN_TRANSACTION = 0  # no transaction of PostgreSQL has this id
# A replayed change is not later than its first report; but servers' clocks may be set back.
_MAX_REPLAY_MS = 60_000
# Debezium's `source.sequence`; null until the connector has seen a transaction end.
_SEQUENCE = re.compile(r'\[\s*(?:null|"([0-9]{1,20})")\s*,\s*"([0-9]{1,20})"\s*\]')


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of n rows in the order of their source; keys may repeat."""

    keys: pa.RecordBatch  # [n] the key columns in exact types, without nulls
    has_row: Mask  # [n] the key's row is now the one in `rows`
    is_gone: Mask  # [n] the row was deleted; if neither, the row changed in an unknown way
    rows: pa.RecordBatch  # [n] all columns of the dimension, where `has_row`
    transaction_ids: npt.NDArray[np.uint32]  # [n] the low 32 bits, or UNKNOWN_TRANSACTION

    def __post_init__(self) -> None:
        """Raise ValueError unless there is a place for each row, also for those not given."""
        if not self.keys.num_rows == self.rows.num_rows == len(self.has_row):
            raise ValueError(f"{self.rows.num_rows} rows of {self.keys.num_rows} changes")

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.keys.nbytes + self.rows.nbytes + self.transaction_ids.nbytes)

    @classmethod
    def loaded(
        cls, keys: pa.RecordBatch, rows: pa.RecordBatch, has_row: Mask | None = None
    ) -> "RowChanges":
        """Each row as the current row of its key; rows with a NULL in the key are left out.

        Where `has_row` is false, the row could not be read.
        """
        has_row = np.ones(keys.num_rows, np.bool_) if has_row is None else has_row
        is_whole = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            is_whole &= column.is_valid().to_numpy(zero_copy_only=False)
        if not is_whole.all():
            keys, rows = keys.filter(pa.array(is_whole)), rows.filter(pa.array(is_whole))
            has_row = has_row[is_whole]
        unknown = np.full(keys.num_rows, UNKNOWN_TRANSACTION, np.uint32)
        return cls(keys, has_row, np.zeros(keys.num_rows, np.bool_), rows, unknown)

    def without_rows(self, which: Mask) -> "RowChanges":
        """The same changes; of these, the rows are unknown."""
        return replace(self, has_row=self.has_row & ~which, is_gone=self.is_gone & ~which)


@dataclass(frozen=True, slots=True)
class TableChange:
    """Any row may have changed: the table was truncated, or the changed rows are unknown."""

    reason: str  # for the log
    transaction_id: int = UNKNOWN_TRANSACTION  # the low 32 bits
    is_gap: bool = False  # made by a snapshot's last transaction, or any that ended before it
    nbytes: ClassVar[int] = 100  # about


Change: TypeAlias = RowChanges | TableChange
LogPosition: TypeAlias = tuple[int, int]  # the end of the transaction before, and the change's own


class ReplayFilter:
    """Recognises changes of one partition that a connector reports again.

    Compares log positions, which are None throughout for a database without positions.
    """

    def __init__(self, senders: EventSenders | None = None) -> None:
        self.senders = EventSenders() if senders is None else senders
        # The message key of the deletion just before; its tombstone may be in the next batch.
        self.deleted_key: bytes | None = None
        self._newest: LogPosition | None = None
        self._latest_ms = 0  # the time of the newest change
        self._is_in_snapshot = False  # the last report was a row of a snapshot

    def is_new(self, position: LogPosition | None) -> bool:
        """Whether no later position was reported.

        An equal position is new: rows written at once share it, each with another key.
        """
        if self._newest is None:
            return True
        return position is not None and position >= self._newest

    def is_other_log(self, position: LogPosition | None, time_ms: int) -> bool:
        """Whether a change belongs to the log of a restored database: a late one, far back."""
        return not self.is_new(position) and time_ms > self._latest_ms + _MAX_REPLAY_MS

    def note(self, position: LogPosition | None, time_ms: int) -> bool:
        """Record a change, unless it is a replay; returns `is_other_log`."""
        self._is_in_snapshot = False
        is_other_log = self.is_other_log(position, time_ms)
        if is_other_log or self.is_new(position):
            self._newest = position
            self._latest_ms = max(self._latest_ms, time_ms)
        return is_other_log

    def note_snapshot(self, *, is_first: bool) -> bool:
        """Record a row of a snapshot; returns whether the snapshot starts with it.

        A connector that has lost its position takes one, and never reports the rows deleted before.
        """
        starts = is_first or not self._is_in_snapshot
        self._is_in_snapshot = True
        return starts

    def is_ahead_of(self, other: "ReplayFilter") -> bool:
        """Whether its position is later, or its log replaces the other's as the much later one."""
        newest = other._newest  # noqa: SLF001 -- of its own class
        if newest is None or self._newest is None:
            return self._newest is not None
        later_ms = self._latest_ms - other._latest_ms  # noqa: SLF001
        return later_ms > 0 if abs(later_ms) > _MAX_REPLAY_MS else self._newest > newest

    def catch_up(self, other: "ReplayFilter") -> None:
        """Take over the position of another partition."""
        self._newest = other._newest  # noqa: SLF001 -- of its own class
        self._latest_ms = other._latest_ms  # noqa: SLF001


def level(logs: Collection[ReplayFilter]) -> None:
    """Give all partitions the latest position: a key may move from any of them to any other."""
    latest = ReplayFilter()
    for log in logs:
        if log.is_ahead_of(latest):
            latest = log
    for log in logs:
        log.catch_up(latest)


def log_position(sequence: object) -> LogPosition | None:
    """The position of a change from Debezium's `source.sequence`; None if it has none."""
    found = _SEQUENCE.fullmatch(sequence) if isinstance(sequence, str) else None
    return found and (int(found[1] or 0), int(found[2]))


def snapshot_position(sequence: object) -> LogPosition | None:
    """The position of a row in a snapshot: after all transactions that had ended by then."""
    position = log_position(sequence)
    return position and (position[1], position[1])


# Parses a JSON document; raises ValueError. A parameter of the decoders, as the core has no fast
# JSON library.
JsonLoads: TypeAlias = Callable[[bytes], object]


class ChangeMessage(Protocol):
    """One message of a partition, with the names of a Kafka record."""

    @property
    def key(self) -> bytes | None:
        """The message's key."""

    @property
    def value(self) -> bytes | None:
        """The message's value; None for a tombstone."""

    @property
    def timestamp(self) -> int:
        """When it was written, in ms since the epoch; negative if unknown."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """The content of n messages, in their order."""

    changes: Sequence[Change]
    source_time_ms: int = NO_WATERMARK_MS  # the latest one in the messages
    ignored: int = 0  # messages without changes of the table
    faults: Mapping[int, str] = field(default_factory=dict)  # {position of a message: reason}
    # {position of a message: why it was not used as it is, and the remedy}
    hints: Mapping[int, str] = field(default_factory=dict)


class ChangeDecoder(Protocol):
    """Decodes the messages of one topic; keeps none of them."""

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """Decode consecutive messages of one partition; never raises.

        An undecodable message yields a TableChange at its position, and a fault. Rows that `log`
        recognises as replays are reported as changed only. None: a new filter, for these messages.
        """


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """What a decoder needs besides the schema."""

    origins: EventOrigins  # for Debezium's events; unused for upserts
    # Whether rows and deletions are reported, or keys only. Rows require that each row has its own
    # key, and that messages hold the columns exactly.
    with_rows: bool
    has_full_identity: bool = False  # the table has REPLICA IDENTITY FULL
    loses_keys: bool = False  # the table's replica identity lacks a column of the key
    max_message_bytes: int = 8 * 2**20  # a larger key or value is undecodable
    row_bytes: int = ROW_BYTES  # a larger row is reported as changed, without its values

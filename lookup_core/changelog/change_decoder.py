"""Change decoder contract: messages in, row and table changes out, duplicates filtered."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.watermark_valve import NO_WATERMARK_MS

Mask = npt.NDArray[np.bool_]

UNKNOWN_TRANSACTION = 0  # no transaction of PostgreSQL has this id


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Changes of n rows in the order of their source; a key may be there more than once."""

    keys: pa.RecordBatch  # [n] the key's fields in exact types, without nulls
    has_row: Mask  # [n] the key's row is now the one in `rows`
    is_gone: Mask  # [n] the key has no row now; where neither: something changed, nobody says what
    rows: pa.RecordBatch  # [n] all columns of the dimension; meaningful where `has_row`
    transaction_ids: npt.NDArray[np.uint32]  # [n] the low 32 bits; or UNKNOWN_TRANSACTION


@dataclass(frozen=True, slots=True)
class TableChange:
    """Any row may have changed: it was truncated, or what changed cannot be told."""

    reason: str  # for the log
    transaction_id: int = UNKNOWN_TRANSACTION  # the low 32 bits


Change: TypeAlias = RowChanges | TableChange


LogPosition: TypeAlias = tuple[int, int]  # where the transaction before ended; the change's place

# What is told again is no later than what was told; but clocks of servers are set, and set back.
_ANEW_MS = 60_000
# Debezium's `source.sequence`; null before the first transaction that it has seen the end of.
_SEQUENCE = re.compile(r'\[\s*(?:null|"([0-9]{1,20})")\s*,\s*"([0-9]{1,20})"\s*\]')
_BEGINNING = 0


class ReplayFilter:
    """Of one partition; a database may tell no positions at all: None throughout."""

    def __init__(self) -> None:
        self._newest: LogPosition | None = None
        self._latest_ms = 0  # of what was news
        self._reads_rows = False  # what was told last was no change

    def is_news(self, position: LogPosition | None) -> bool:
        """Whether nothing later was told.

        So is what stands where the newest does: rows that are written at once share their place,
        and no key is there twice.
        """
        if self._newest is None:
            return True
        return position is not None and position >= self._newest

    def begins_anew(self, position: LogPosition | None, time_ms: int) -> bool:
        """Whether it is of another log, as after a restore: later than all, at a former place."""
        return not self.is_news(position) and time_ms > self._latest_ms + _ANEW_MS

    def note(self, position: LogPosition | None, time_ms: int) -> bool:
        """A change was told: the log goes on from there, unless it was told again.

        Whether that is of another log, as `begins_anew` says.
        """
        self._reads_rows = False
        begins_anew = self.begins_anew(position, time_ms)
        if begins_anew or self.is_news(position):
            self._newest = position
            self._latest_ms = max(self._latest_ms, time_ms)
        return begins_anew

    def note_snapshot(self, *, is_first: bool) -> bool:
        """A row was read; whether that begins to tell all rows.

        A connector that has lost its place does so, and nobody tells which rows are gone.
        """
        begins = is_first or not self._reads_rows
        self._reads_rows = True
        return begins

    def is_beyond(self, other: Self) -> bool:
        """Whether it is further; where one is much later, its log has taken the other's place."""
        if other._newest is None or self._newest is None:
            return self._newest is not None
        later_ms = self._latest_ms - other._latest_ms
        return later_ms > 0 if abs(later_ms) > _ANEW_MS else self._newest > other._newest

    def catch_up(self, other: Self) -> None:
        """Be as far as another partition."""
        self._newest, self._latest_ms = other._newest, other._latest_ms


def level(logs: Collection[ReplayFilter]) -> None:
    """Let all partitions be as far as the furthest: what was told in one may be told in others."""
    furthest = ReplayFilter()
    for log in logs:
        if log.is_beyond(furthest):
            furthest = log
    for log in logs:
        log.catch_up(furthest)


def log_position(sequence: object) -> LogPosition | None:
    """The position of a change, from what Debezium tells of it; None if it does not."""
    found = _SEQUENCE.fullmatch(sequence) if isinstance(sequence, str) else None
    return found and (int(found[1] or _BEGINNING), int(found[2]))


def snapshot_position(sequence: object) -> LogPosition | None:
    """The position of a row that a connector has read: behind all that had ended by then."""
    position = log_position(sequence)
    return position and (position[1], position[1])


# From the bytes of a JSON document; raises ValueError. A parameter of the decoders, because whoever
# has this package without the service has no fast library for it.
JsonLoads: TypeAlias = Callable[[bytes], object]


class ChangeMessage(Protocol):
    """One message of a partition, named as a record of Kafka's is."""

    @property
    def key(self) -> bytes | None:
        """The message's key."""

    @property
    def value(self) -> bytes | None:
        """The message's value; None: a tombstone."""

    @property
    def timestamp(self) -> int:
        """When it was written, in ms since the epoch; negative: unknown."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What n messages say, in their order."""

    changes: Sequence[Change]
    source_time_ms: int = NO_WATERMARK_MS  # the latest one that the messages tell of
    ignored: int = 0  # messages that say nothing of the table
    faults: Mapping[int, str] = field(default_factory=dict)  # {position of a message: why}
    nbytes: int = 0  # what the changes hold in memory


class ChangeDecoder(Protocol):
    """Decodes the messages of one topic; remembers none of them."""

    def decode(self, messages: Sequence[ChangeMessage], log: ReplayFilter | None = None) -> Decoded:
        """What the messages of one partition say; never raises.

        Whatever cannot be decoded is a TableChange at its place, and stands in `faults`. Rows are
        not told if a later one was: `log` knows that, and notes what is told now. None: the first.
        """


@dataclass(frozen=True, slots=True)
class DecoderSettings:
    """What a decoder has to know besides the schema."""

    table: str  # "schema.table", as Debezium names it; of no account for upserts
    # Whether rows and their absence are told, not only keys. Only where each row has a key of its
    # own and messages tell the columns exactly: see the module of the format.
    with_rows: bool
    database: str | None = None  # Debezium's name of it; None: there is only one
    has_full_identity: bool = False  # the table has REPLICA IDENTITY FULL
    max_message_bytes: int = 8 * 2**20  # key and value; a larger one counts as undecodable

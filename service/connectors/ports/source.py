"""Source port, after Flink's FLIP-27: loads a dimension or follows its changes.

A source needs `reader`, and its readers need `assign` and `read`; the rest has defaults, for one
split of changes without end.
"""

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from lookup_core.changelog.change_decoder import Change
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.event_time.watermark_valve import NO_WATERMARK_MS
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.sources.splits import ReadingMode, Split


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """The result of one read of one split, maybe without changes.

    This piece and the earlier ones have all changes before `position`.
    """

    split_id: str
    position: int  # in the split, where a new reader continues
    changes: Sequence[Change] = ()
    watermark_ms: int = NO_WATERMARK_MS  # later changes have this event time or a later one
    silent_s: float = 0.0  # since the source last responded for this split
    # Since the newest request with a response was sent, at most; None: `silent_s`.
    requested_s: float | None = None
    is_caught_up: bool = False  # read up to the end at its assignment; so are finished ones
    is_finished: bool = False  # no piece follows; bounded sources only
    total: int | None = None  # the final `position`, roughly, if known
    snapshot: TableSnapshot | None = None  # the snapshot that the rows belong to, if any
    server: ServerIdentity | None = None  # it has the rows, or the changes' transaction ids
    ignored: int = 0  # messages without changes of the table
    undecodable: int = 0  # messages that count as changes of the whole table
    doubt: str | None = None  # why the source may not report the table, by its latest events

    @property
    def nbytes(self) -> int:
        """The memory of the changes."""
        return sum(change.nbytes for change in self.changes)


class SplitEnumerator(AbstractAsyncContextManager["SplitEnumerator"], Protocol):
    """Finds the splits of a source; opened before the first reader, closed after the last.

    `async with` connects, or raises BackendError. It disconnects within a second, without raising.
    """

    discovery_interval_s: float | None = None  # None: one discovery only

    async def __aexit__(self, *_: object) -> None:
        return None  # nothing is open

    async def discover(self) -> Sequence[Split]:
        """All current splits, known ones included; raises BackendError."""


class FixedSplits(SplitEnumerator):
    """Splits that are known without a connection."""

    def __init__(self, *splits: Split) -> None:
        self._splits = splits

    async def discover(self) -> Sequence[Split]:
        """These splits."""
        return self._splits


class SplitReader(AbstractAsyncContextManager["SplitReader"], Protocol):
    """Reads one or several splits, by the source's reading mode.

    Opened and closed like an enumerator. After a BackendError or a cancellation, the reader is
    closed, and a new one continues at the last positions.
    """

    async def __aexit__(self, *_: object) -> None:
        return None  # nothing is open

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read one more split from this position; None: from the start of the source."""

    async def read(self) -> Sequence[SplitPiece]:
        """The next pieces, bounded in bytes; raises BackendError.

        An unbounded source waits for changes at most one second, and then has a piece of each
        assigned split that is not paused. A bounded one waits for its rows.
        """

    def pause(self, split_ids: Collection[str]) -> None:  # noqa: ARG002  of others
        """Pause these splits, and resume all others; for readers of several splits at once.

        Without effect by default: a reader is not read while all of its splits are paused.
        """
        return  # else it would be abstract

    def request_sign(self) -> None:
        """Request a sign of life now; by default without effect, as each read requests one."""
        return  # as above


class Source(Protocol):
    """The rows of one moment (bounded), or the changes from now on (unbounded)."""

    is_bounded: bool = False  # whether its splits end
    reading_mode: ReadingMode = ReadingMode.SEQUENTIAL

    def enumerator(self, schema: DimensionSchema) -> SplitEnumerator:  # noqa: ARG002  of others
        """A new enumerator, not opened yet, for a dimension of this schema."""
        return FixedSplits(Split("all"))

    def reader(self, schema: DimensionSchema) -> SplitReader:
        """A new reader, not opened yet."""

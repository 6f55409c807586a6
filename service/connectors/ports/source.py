"""Source port: loads a dimension or follows its changes.

After Flink's FLIP-27.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from lookup_core.changelog.change_decoder import Change
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.sources.splits import ReadingMode, Split
from lookup_core.watermark_valve import NO_WATERMARK_MS


@dataclass(frozen=True, slots=True)
class SplitPiece:
    """What one read brought of one split, in the split's order; may be no more than a sign of life.

    Whatever lies before `position` was told in this piece or in earlier ones.
    """

    split_id: str
    position: int  # of the split, from which a new reader goes on
    changes: Sequence[Change] = ()
    nbytes: int = 0  # what the changes hold in memory
    watermark_ms: int = NO_WATERMARK_MS  # no change of an earlier event time follows
    silent_s: float = 0.0  # how long ago the source spoke last, of this split or of none
    is_caught_up: bool = False  # all is read that was there when the reader was given the split
    is_finished: bool = False  # nothing follows, ever; of bounded sources only
    total: int | None = None  # about where `position` will end, if it is known
    snapshot: TableSnapshot | None = None  # what the rows are a picture of, if they are one
    ignored: int = 0  # messages that say nothing of the table
    undecodable: int = 0  # messages that count as changes of the whole table


class SplitEnumerator(Protocol):
    """Finds the splits of a source; opened before the first reader, closed after the last."""

    @property
    def discovery_interval_s(self) -> float | None:
        """How often to look for new splits; None: once."""

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect, at the latest after a second; never raises."""

    async def discover(self) -> Sequence[Split]:
        """All splits that there are now, the known ones again; raises BackendError."""


class SplitReader(Protocol):
    """Reads splits; a source's reading mode says how many at a time.

    After a BackendError the reader is closed, and a new one goes on from the last positions.
    """

    async def __aenter__(self) -> Self:
        """Connect; raises BackendError."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Disconnect, at the latest after a second; never raises."""

    async def assign(self, split: Split, *, position: int | None) -> None:
        """Read this split, too, from there on; None: from where the source begins."""

    async def read(self) -> Sequence[SplitPiece]:
        """What there is by now, waited for a second at the most; bounded in bytes.

        Each call tells of each split that is not paused, if only how long it has been silent.
        Raises BackendError. Cancellation loses nothing: what was not returned is not read.
        """

    def pause(self, split_ids: Collection[str]) -> None:
        """Read nothing of these (all others go on) until it is called again."""


class Source(Protocol):
    """Rows at one moment (bounded), or the changes from now on (unbounded)."""

    @property
    def is_bounded(self) -> bool:
        """Whether it comes to an end."""

    @property
    def reading_mode(self) -> ReadingMode:
        """How its splits are read."""

    def enumerator(self, schema: DimensionSchema) -> SplitEnumerator:
        """A new enumerator, not opened yet, for a dimension of this schema."""

    def reader(self, schema: DimensionSchema) -> SplitReader:
        """A new reader, not opened yet."""

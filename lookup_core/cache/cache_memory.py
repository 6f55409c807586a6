"""Cache memory: the port by which a cache allocates its arrays and rows, and publishes them.

The service has an implementation whose memory other processes can read.
"""

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.cache.cache_view import CacheView

Number = TypeVar("Number", bound=np.generic)


class CacheMemory(Protocol):
    """Memory of one cache. What is allocated stays as long as it is referenced."""

    @property
    def is_shared(self) -> bool:
        """Whether readers see the arrays while they change: rows need the hashes of their keys."""

    def zeros(self, count: int, kind: type[Number]) -> npt.NDArray[Number]:
        """A new array of zeros, which the cache changes in place."""

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows in this memory; they never change."""

    def fence(self) -> None:
        """Make readers see the stores before it before those behind it."""

    def publish(self, view: CacheView) -> None:
        """Let readers use these arrays and rows in place of the former ones."""

    def allow_reads(self, *, until: float) -> None:
        """Until when readers may use the cache; for ever until the first call."""

    def begin_change(self) -> None:
        """From now on, readers conclude nothing from the absence of a key."""

    def end_change(self, *, is_whole: bool) -> None:
        """From now on, if `is_whole`, a key that is absent has no row."""

    def confirm(self, fresh_at: float) -> None:
        """All entries are as fresh as that, in monotonic seconds, if `is_whole`."""


class OwnMemory:
    """Memory of this process only."""

    is_shared = False

    def zeros(self, count: int, kind: type[Number]) -> npt.NDArray[Number]:
        """See `CacheMemory`."""
        return np.zeros(count, kind)

    def rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """See `CacheMemory`."""
        return rows

    def fence(self) -> None:
        """See `CacheMemory`: there are no readers."""

    def publish(self, view: CacheView) -> None:
        """See `CacheMemory`: there are no readers."""

    def allow_reads(self, *, until: float) -> None:
        """See `CacheMemory`: there are no readers."""

    def begin_change(self) -> None:
        """See `CacheMemory`: there are no readers."""

    def end_change(self, *, is_whole: bool) -> None:
        """See `CacheMemory`: there are no readers."""

    def confirm(self, fresh_at: float) -> None:
        """See `CacheMemory`: there are no readers."""

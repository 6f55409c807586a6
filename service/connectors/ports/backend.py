"""Backend port: queries a database, or files, for a dimension's rows by key."""

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.freshness.table_snapshot import TableSnapshot


@dataclass(frozen=True, slots=True)
class FetchedRows:
    """The rows of a batch of keys; keys without a row are left out."""

    ordinals: npt.NDArray[np.int32]  # [m] which key of the batch each row belongs to
    rows: pa.RecordBatch  # [m] all columns of the dimension
    store: str = ""  # which server responded, if known: another may hold other rows
    snapshot: TableSnapshot | None = None  # the transactions that the read saw, if known
    read_at: float | None = None  # monotonic seconds; None: after the request


class Backend(Protocol):
    """Fetches the rows of many keys per query; opened and closed by `async with`.

    Opening does not require a running database: `describe` is repeated until it succeeds.
    """

    @property
    def uses_index(self) -> bool | None:
        """Whether keys are found by an index, not a scan; None before the first `describe`."""

    async def __aenter__(self) -> Self:
        """Prepare, without connecting."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections within a second; never raises."""

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the exact types of key and columns.

        Raises BackendError (`table_unavailable`, `backend_unavailable`, `backend_auth`,
        `forbidden`, `timeout`) within `timeout_s`. Cancellation leaves no connection behind.
        """

    async def probe(self, *, timeout_s: float) -> None:
        """Check that the backend responds, without reading the table.

        Raises BackendError within `timeout_s`. Cancellation leaves no connection behind.
        """

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """Fetch the rows of distinct, non-null keys of the described types, in one round trip.

        Raises BackendError within `timeout_s` plus 0.25 s, even if the network drops all packets;
        `schema_changed` requires another `describe`. Cancellation ends the query and terminates its
        connection, without waiting for the server.
        """

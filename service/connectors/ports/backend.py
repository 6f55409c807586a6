"""Backend port: where a dimension's rows are looked up."""

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
    """The rows that a store has for a batch of keys; a key without a row is just not there."""

    ordinals: npt.NDArray[np.int32]  # [m] which key of the batch each row belongs to
    rows: pa.RecordBatch  # [m] all columns of the dimension
    store: str = ""  # which store answered, if it can say: another one may hold other rows
    snapshot: TableSnapshot | None = None  # which transactions the read saw, if it can say
    read_at: float | None = None  # monotonic seconds; None: after it was asked for them


class Backend(Protocol):
    """A store that is asked for the rows of many keys at once.

    Opened and closed by `async with`. Opening does not need the store to be up: a sidecar starts
    while its database is down, and `describe` is asked again until it answers.
    """

    @property
    def uses_index(self) -> bool | None:
        """Whether keys are found without reading all rows; None before the first `describe`."""

    async def __aenter__(self) -> Self:
        """Prepare, without contacting the store."""

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Free all connections, at the latest after a second; never raises."""

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """The exact types of key and columns, read from the store.

        Raises BackendError (`table_unavailable`, `backend_unavailable`, `backend_auth`,
        `forbidden`, `timeout`) within `timeout_s`. Cancellation leaves no connection behind.
        """

    async def probe(self, *, timeout_s: float) -> None:
        """Ask the store for a sign of life that costs it nothing, not even a look at the table.

        Raises BackendError within `timeout_s`, as `fetch` does. Cancellation leaves no connection
        behind.
        """

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """The rows of distinct, non-null keys of the described types.

        One round trip whatever the number of keys. Raises BackendError within `timeout_s` plus
        a quarter of a second, also on a network that swallows everything; `schema_changed` asks
        for another `describe`. Cancellation ends the query and terminates its connection; it does
        not wait for the store.
        """

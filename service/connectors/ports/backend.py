"""Backend port: queries a database, or files, for a dimension's rows by key."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

import pyarrow as pa

from lookup_core.dimension.dimension_events import FetchedRows
from lookup_core.dimension_schema import DimensionSchema


class Backend(AbstractAsyncContextManager["Backend"], Protocol):
    """Fetches the rows of many keys per query; opened and closed by `async with`.

    A backend needs `describe` and `fetch`; the rest has defaults. Opening does not connect:
    `describe` is repeated until it succeeds. Closing takes at most a second, and never raises.
    """

    # Whether `fetch` reads its rows after the call, so that they have no `read_at`.
    reads_on_request: bool = True

    @property
    def uses_index(self) -> bool | None:
        """Whether keys are found by an index, not a scan; None: unknown, or not described yet."""
        return None

    async def __aexit__(self, *_: object) -> None:
        return None  # nothing is open

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Read the exact types of key and columns.

        Raises BackendError (`table_unavailable`, `backend_unavailable`, `backend_auth`,
        `forbidden`, `timeout`) within `timeout_s`. Cancellation leaves no connection behind.
        """

    async def probe(self, *, timeout_s: float) -> None:  # noqa: ARG002  of others
        """Check that the backend responds, without reading the table; by default, it does.

        Raises BackendError within `timeout_s`. Cancellation leaves no connection behind.
        """
        return  # else it would be abstract

    async def fetch(self, keys: pa.RecordBatch, *, timeout_s: float) -> FetchedRows:
        """Fetch the rows of distinct, non-null keys of the described types, in one round trip.

        Raises BackendError within `timeout_s` plus 0.25 s, even if the network drops all packets;
        `schema_changed` requires another `describe`. Cancellation ends the query and terminates its
        connection, without waiting for the server.
        """

"""Backend calls with a hard timeout, one error type and checked rows."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import structlog

from lookup_core.dimension.dimension_events import FetchedRows, QueryOrder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.ports.backend import Backend
from service.engine.shared_connections import ConnectionShare

log = structlog.get_logger()

GRACE_S = 1.0  # on top of the backend's own timeout, if it does not keep it

T = TypeVar("T")


async def backend_call(call: Awaitable[T], *, timeout_s: float, grace_s: float = GRACE_S) -> T:
    """Await a call of a backend.

    Raises BackendError only: `timeout` also if the backend overruns its time, `internal` for a
    defect of the backend. Cancellation cancels the call.
    """
    try:
        async with asyncio.timeout(timeout_s + grace_s):
            return await call
    except BackendError:
        raise
    except TimeoutError as error:
        raise BackendError(ErrorCode.TIMEOUT, "the backend did not keep its own timeout") from error
    except asyncio.CancelledError as error:
        if _is_cancelled():
            raise
        # A cancellation inside a library must not end this task: its lookups would never end.
        raise _defect(error) from error
    except Exception as error:
        # The border to foreign code: see above.
        raise _defect(error) from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _defect(error: BaseException) -> BackendError:
    log.error("backend.defect", exc_info=error)
    return BackendError(ErrorCode.INTERNAL, f"defect in the backend: {type(error).__name__}")


class BackendCalls:
    """The backend of one dimension and its share of the connections; raises as `backend_call`.

    Checks wait for a connection before their time begins. A query has its own already.
    """

    def __init__(self, backend: Backend, connections: ConnectionShare) -> None:
        self.backend = backend
        self.connections = connections

    async def describe(self, *, timeout_s: float) -> DimensionSchema:
        """Describe the table."""
        async with self.connections.for_check():
            call = self.backend.describe(timeout_s=timeout_s)
            return await backend_call(call, timeout_s=timeout_s)

    async def probe(self, *, timeout_s: float) -> None:
        """Check that the backend responds."""
        async with self.connections.for_check():
            await backend_call(self.backend.probe(timeout_s=timeout_s), timeout_s=timeout_s)

    async def fetch(self, order: QueryOrder, schema: DimensionSchema) -> FetchedRows:
        """Fetch and check the rows of the order's keys."""

        async def fetch() -> FetchedRows:
            fetched = await self.backend.fetch(order.keys, timeout_s=order.timeout_s)
            _check(fetched, order.keys.num_rows, schema)
            return fetched

        return await backend_call(fetch(), timeout_s=order.timeout_s)


def _check(fetched: FetchedRows, key_count: int, schema: DimensionSchema) -> None:
    ordinals = fetched.ordinals
    if not fetched.rows.schema.equals(schema.columns):
        raise BackendError(
            ErrorCode.SCHEMA_CHANGED, "the backend's columns differ from its description"
        )
    if len(ordinals) != fetched.rows.num_rows and len(schema.columns):
        raise BackendError(
            ErrorCode.INTERNAL, "the backend returned more or fewer ordinals than rows"
        )
    if len(ordinals) and not (ordinals.min() >= 0 and ordinals.max() < key_count):
        raise BackendError(ErrorCode.INTERNAL, "the backend returned a row for an unknown ordinal")

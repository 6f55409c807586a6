"""One query to a backend, with its answer checked before anybody believes it.

A backend that returns rows of other keys or of another shape must fail its query, not fill a cache.
"""

from lookup_core.dimension.dimension_events import QueryOrder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import Backend, FetchedRows
from service.engine.backend_call import backend_call


async def checked_fetch(
    backend: Backend, order: QueryOrder, schema: DimensionSchema
) -> FetchedRows:
    """The rows of the order's keys; raises BackendError only, as `backend_call` does.

    Cancellation cancels the fetch.
    """

    async def fetch() -> FetchedRows:
        fetched = await backend.fetch(order.keys, timeout_s=order.timeout_s)
        _check(fetched, order.keys.num_rows, schema)
        return fetched

    return await backend_call(fetch(), timeout_s=order.timeout_s)


def _check(fetched: FetchedRows, key_count: int, schema: DimensionSchema) -> None:
    ordinals = fetched.ordinals
    if not fetched.rows.schema.equals(schema.columns):
        raise BackendError(
            ErrorCode.SCHEMA_CHANGED, "the backend's columns are not those described"
        )
    if len(ordinals) != fetched.rows.num_rows and len(schema.columns):
        raise BackendError(
            ErrorCode.INTERNAL, "the backend returned rows and ordinals that disagree"
        )
    if len(ordinals) and not (ordinals.min() >= 0 and ordinals.max() < key_count):
        raise BackendError(ErrorCode.INTERNAL, "the backend returned a row of no key asked for")

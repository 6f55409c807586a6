"""One query to a backend, with its answer checked before anybody believes it.

A backend that returns rows of other keys or of another shape must fail its query, not fill a cache.
"""

import asyncio

import structlog

from lookup_core.dimension_events import QueryOrder
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.backends.interface import Backend, FetchedRows

log = structlog.get_logger()

_GRACE_S = 1.0  # on top of the backend's own timeout, against one that does not keep it


async def checked_fetch(
    backend: Backend, order: QueryOrder, schema: DimensionSchema
) -> FetchedRows:
    """The rows of the order's keys.

    Raises BackendError only: `timeout` also when the backend overruns its time, `internal` for a
    defect of it. Cancellation cancels the fetch.
    """
    try:
        async with asyncio.timeout(order.timeout_s + _GRACE_S):
            fetched = await backend.fetch(order.keys, timeout_s=order.timeout_s)
    except BackendError:
        raise
    except TimeoutError as error:
        raise BackendError(ErrorCode.TIMEOUT, "the backend did not keep its own timeout") from error
    except Exception as error:
        # The border of a task: a defect in an adapter must end its own lookups only.
        log.exception("query.defect")
        raise BackendError(
            ErrorCode.INTERNAL, f"defect in the backend: {type(error).__name__}"
        ) from error
    _check(fetched, order.keys.num_rows, schema)
    return fetched


def _check(fetched: FetchedRows, key_count: int, schema: DimensionSchema) -> None:
    ordinals = fetched.ordinals
    if len(ordinals) != fetched.rows.num_rows and len(schema.columns):
        raise BackendError(
            ErrorCode.INTERNAL, "the backend returned rows and ordinals that disagree"
        )
    if len(ordinals) and not (ordinals.min() >= 0 and ordinals.max() < key_count):
        raise BackendError(ErrorCode.INTERNAL, "the backend returned a row of no key asked for")
    if not fetched.rows.schema.equals(schema.columns):
        raise BackendError(
            ErrorCode.SCHEMA_CHANGED, "the backend's columns are not those described"
        )

"""A call to a backend that ends in time and fails in one way, whatever the adapter does.

The border between the engine and adapters: a defect of one must end its own lookups only.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import structlog

from lookup_core.errors import BackendError, ErrorCode

log = structlog.get_logger()

GRACE_S = 1.0  # on top of the backend's own timeout, against one that does not keep it

T = TypeVar("T")


async def backend_call(call: Awaitable[T], *, timeout_s: float, grace_s: float = GRACE_S) -> T:
    """What the call brings.

    Raises BackendError only: `timeout` also when the backend overruns its time, `internal` for a
    defect of it. Cancellation cancels the call.
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
        # A library's own cancellation, taken for ours, would leave those who wait without an end.
        raise _defect(error) from error
    except Exception as error:
        # The border of a task: see above.
        raise _defect(error) from error


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _defect(error: BaseException) -> BackendError:
    log.error("backend.defect", exc_info=error)
    return BackendError(ErrorCode.INTERNAL, f"defect in the backend: {type(error).__name__}")

"""A call to a backend ends in time and fails in one way."""

import asyncio
from typing import NoReturn

import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.engine.backend_call import backend_call

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "down")


async def answer(result: str) -> str:
    """A call that works."""
    return result


async def failing(error: BaseException) -> NoReturn:
    """A call that does not."""
    raise error


async def never() -> NoReturn:
    """A call that ignores its own timeout."""
    await asyncio.Future()
    raise AssertionError


async def test_result_comes_through() -> None:
    """A call that works brings what it brings."""
    assert await backend_call(answer("rows"), timeout_s=1.0) == "rows"


async def test_backend_error_comes_through() -> None:
    """An error of the adapter's own is for the caller, as it is."""
    with pytest.raises(BackendError) as caught:
        await backend_call(failing(DOWN), timeout_s=1.0)

    assert caught.value is DOWN


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TimeoutError(), ErrorCode.TIMEOUT),
        (ZeroDivisionError(), ErrorCode.INTERNAL),
        (asyncio.CancelledError(), ErrorCode.INTERNAL),
    ],
)
async def test_foreign_error_is_mapped(error: BaseException, code: ErrorCode) -> None:
    """What an adapter lets through becomes a BackendError, with its cause."""
    with pytest.raises(BackendError) as caught:
        await backend_call(failing(error), timeout_s=1.0)

    assert (caught.value.code, caught.value.__cause__) == (code, error)


async def test_overrun_is_a_timeout() -> None:
    """A backend that does not keep its timeout is cut off after a grace."""
    with pytest.raises(BackendError) as caught:
        await backend_call(never(), timeout_s=0.0, grace_s=0.01)

    assert caught.value.code is ErrorCode.TIMEOUT


async def test_cancellation_stays_cancellation() -> None:
    """Who is cancelled is cancelled, and the call with him."""
    call: asyncio.Task[NoReturn] = asyncio.ensure_future(never())
    task = asyncio.ensure_future(backend_call(call, timeout_s=9.0))
    await asyncio.sleep(0)  # let it begin

    task.cancel()
    await asyncio.wait([task, call])

    assert task.cancelled()
    assert call.cancelled()

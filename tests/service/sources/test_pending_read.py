"""A read that outlives the calls that wait for it."""

import asyncio

import pytest

from service.connectors.ports import split_read as pending_read
from service.connectors.ports.split_read import PendingRead


async def number_after(gate: asyncio.Event) -> int:
    """A read that brings its number once it may."""
    await gate.wait()
    return 7


async def test_read_brings_its_result_once() -> None:
    """What was read is taken by one call; then another read may begin."""
    pending: PendingRead[int] = PendingRead()
    gate = asyncio.Event()
    gate.set()
    pending.begin(number_after(gate))

    assert await pending.take() == 7

    assert not pending.is_begun


async def test_cancelled_call_loses_nothing() -> None:
    """A call that is cancelled leaves the read to the next one."""
    pending: PendingRead[int] = PendingRead()
    gate = asyncio.Event()
    pending.begin(number_after(gate))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await pending.take()
    gate.set()

    assert await pending.take() == 7


async def test_slow_read_is_waited_for_again() -> None:
    """A call is over after a second, and says so; the read goes on."""
    pending: PendingRead[int] = PendingRead()
    gate = asyncio.Event()
    pending.begin(number_after(gate))
    loop = asyncio.get_running_loop()
    began_at = loop.time()

    assert await pending.take() is None

    assert loop.time() - began_at >= pending_read.WAIT_S
    gate.set()
    assert await pending.take() == 7


async def test_ended_read_is_gone() -> None:
    """Whoever cancels gets nothing of the read, whether it still runs, has failed, or never was."""
    pending: PendingRead[int] = PendingRead()
    await pending.cancel()
    pending.begin(number_after(asyncio.Event()))
    await pending.cancel()
    pending.begin(failing())
    await asyncio.sleep(0)

    await pending.cancel()

    assert not pending.is_begun


async def test_failure_is_raised_where_it_is_taken() -> None:
    """What a read raises is raised by the call that takes its result."""
    pending: PendingRead[int] = PendingRead()
    pending.begin(failing())

    with pytest.raises(ValueError, match="no number"):
        await pending.take()

    assert not pending.is_begun


async def failing() -> int:
    """A read that fails."""
    raise ValueError("no number")

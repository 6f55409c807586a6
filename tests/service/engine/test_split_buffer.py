"""The buffer between readers and the one who takes: bounded, in order, and fair to its lanes."""

import asyncio

from service.engine.split_reading import SplitBuffer


def buffer_of(lane_bytes: int, arrivals: list[str] | None = None) -> SplitBuffer[str]:
    """A buffer that notes its arrivals."""
    notes = [] if arrivals is None else arrivals
    return SplitBuffer(lane_bytes, lambda: notes.append("arrived"))


async def test_lane_keeps_its_order() -> None:
    """What came first leaves first; an empty buffer gives nothing."""
    arrivals: list[str] = []
    buffer = buffer_of(10_000, arrivals)
    for parcel in "abc":
        await buffer.put("", parcel, nbytes=100)

    assert [buffer.pop() for _ in range(4)] == ["a", "b", "c", None]
    assert (arrivals, buffer.nbytes) == (["arrived"] * 3, 0)


async def test_lanes_take_turns() -> None:
    """A lane with much to take does not keep others waiting."""
    buffer = buffer_of(10_000)
    for lane, parcel in (("x", "x1"), ("x", "x2"), ("x", "x3"), ("y", "y1"), ("y", "y2")):
        await buffer.put(lane, parcel, nbytes=0)

    assert [buffer.pop() for _ in range(5)] == ["x1", "y1", "x2", "y2", "x3"]


async def test_full_lane_makes_its_reader_wait() -> None:
    """Whoever puts into a full lane goes on when there is room; other lanes have theirs."""
    buffer = buffer_of(1_000)
    await buffer.put("x", "x1", nbytes=700)

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(buffer.put("x", "x2", nbytes=700))
        await buffer.put("y", "y1", nbytes=700)
        await asyncio.sleep(0)
        assert (waiting.done(), buffer.nbytes) == (False, 2 * (700 + 256))
        assert buffer.pop() == "x1"
    assert [buffer.pop() for _ in range(3)] == ["y1", "x2", None]


async def test_large_parcel_passes_alone() -> None:
    """One that is larger than the lane is let in when nothing else is there."""
    buffer = buffer_of(100)
    await buffer.put("x", "large", nbytes=10**9)

    assert (buffer.pop(), buffer.nbytes) == ("large", 0)


async def test_parcels_without_content_count() -> None:
    """Signs of life are not piled up without an end when nobody takes them."""
    buffer = buffer_of(1_000)

    put = 0
    try:
        async with asyncio.timeout(0.01):
            while True:
                await buffer.put("x", "alive", nbytes=0)
                put += 1
    except TimeoutError:
        pass

    assert (put, buffer.nbytes) == (3, 768)


async def test_cancelled_put_leaves_nothing() -> None:
    """A parcel whose wait was cancelled does not come later."""
    buffer = buffer_of(300)
    await buffer.put("x", "x1", nbytes=0)
    waiting = asyncio.create_task(buffer.put("x", "x2", nbytes=0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert [buffer.pop(), buffer.pop(), buffer.nbytes] == ["x1", None, 0]

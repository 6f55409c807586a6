"""Channels that belong to a trace: each of their lookups is a span with that parent."""

from dataclasses import replace

from lookup_core.protocol import frames
from lookup_core.protocol.trace_parent import TraceParent
from service.engine.fake_tracer import FakeTracer
from tests.service.stream.streaming import Peer, Setting, open_frame, streaming, until

TRACE = TraceParent(f"00-{'a' * 32}-{'b' * 16}-01", "vendor=1")
UNFOLLOWED = TraceParent(f"00-{'a' * 32}-{'b' * 16}-00")


async def opened(peer: Peer, trace: TraceParent | None) -> None:
    """Open channel 1 for this trace."""
    await peer.greet()
    await peer.send(replace(open_frame(), trace=trace))
    peer.columns = (await peer.receive(frames.Opened)).columns


async def answered(peer: Peer) -> None:
    """Wait for the last answer to a lookup; its credit may come before it."""
    while not (isinstance(frame := await peer.frame(), frames.Result) and frame.is_last):
        pass


async def test_each_lookup_is_a_span() -> None:
    """With the parent that its channel was opened with, and the outcomes of its keys."""
    tracer = FakeTracer()
    async with streaming(Setting(tracer=tracer)) as service:
        peer = await service.connect()
        await opened(peer, TRACE)
        for sequence in (1, 2):
            await peer.ask(sequence, 7, 9)
            await answered(peer)

    first, second = tracer.askers
    assert (first.what, first.parent, first.has_ended) == (("customers", 2), TRACE, True)
    assert (first.outcomes, second.outcomes) == (
        {"fetched": 1, "missing": 1},
        {"hit": 1, "missing": 1},
    )


async def test_unfollowed_channel_has_no_spans() -> None:
    """Who says that its trace is not followed is answered as everybody is."""
    tracer = FakeTracer()
    async with streaming(Setting(tracer=tracer)) as service:
        peer = await service.connect()
        await opened(peer, UNFOLLOWED)
        await peer.ask(1, 7)
        await answered(peer)

    assert tracer.askers == []


async def test_lookup_that_was_left_says_so() -> None:
    """Whose peer vanishes ends without outcomes, and once."""
    tracer = FakeTracer()
    async with streaming(Setting(tracer=tracer)) as service:
        service.stores["customers"].hold()
        peer = await service.connect()
        await opened(peer, TRACE)
        await peer.ask(1, 7)
        await service.stores["customers"].wait_for_fetches(1)
        peer.vanish()
        await until(lambda: tracer.askers[0].has_ended)

    assert (tracer.askers[0].is_left, tracer.askers[0].outcomes) == (True, {})

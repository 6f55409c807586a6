"""Channels to a dimension that waits for its changes: what they are told, and who waits."""

from dataclasses import replace

from lookup_core.protocol import frames
from tests.service.engine.running import PATIENCE_S, settings
from tests.service.stream.streaming import Peer, Setting, lookup_frame, streaming

AHEAD_MS = 2**62  # later than all that is known


async def asked_twice(peer: Peer) -> list[int]:
    """The sequences in the order of their answers: the first lookup has a time, the other none."""
    await peer.send(replace(lookup_frame(1, 7), event_time_ms=AHEAD_MS), lookup_frame(2, 8))
    received = [await peer.frame() for _ in range(4)]  # each answer with its credit
    return [frame.sequence for frame in received if isinstance(frame, frames.Result)]


async def test_dimension_that_waits_says_so() -> None:
    """Then lookups may have the time of their records; otherwise nothing is said of it."""
    waiting = replace(settings(), wait_for_dimension_s=PATIENCE_S)

    async with streaming(Setting(customers=waiting)) as service:
        peer = await service.connect()
        await peer.greet()
        told = await peer.open()
    async with streaming() as service:
        peer = await service.connect()
        await peer.greet()
        told_otherwise = await peer.open()

    assert (told.waits, told_otherwise.waits) == (True, False)


async def test_lookup_with_a_time_waits() -> None:
    """Up to the end of the wait, if no change comes; one without a time overtakes it."""
    waiting = replace(settings(), wait_for_dimension_s=0.2)

    async with streaming(Setting(customers=waiting)) as service:
        assert await asked_twice(await service.peer()) == [2, 1]


async def test_time_means_nothing_to_who_does_not_wait() -> None:
    """A dimension that does not wait answers in the order of the questions."""
    async with streaming() as service:
        assert await asked_twice(await service.peer()) == [1, 2]

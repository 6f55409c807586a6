"""Slow and greedy peers: unread answers, pings and refusals are bounded."""

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from lookup_core.answer import Outcome
from lookup_core.protocol import frames
from lookup_core.protocol.stream_server import MAX_QUEUED_FRAMES
from service.stream.connection import PING_BURST, Timeouts
from tests.service.engine.running import queried
from tests.service.stream.streaming import (
    Peer,
    Setting,
    Streaming,
    credit_of,
    open_frame,
    streaming,
    until,
)

MIB = 1024 * 1024
QUICK = Timeouts(send_s=0.3, close_s=0.1)


def limited(answer_bytes: int, timeouts: Timeouts | None = None) -> Setting:
    """A byte budget, and more credit than any test uses."""
    return Setting(timeouts or Timeouts(), credit_bytes=512 * MIB, answer_bytes=answer_bytes)


# Unread answers


async def test_unread_answers_are_bounded() -> None:
    """A peer that reads nothing holds at most half of the byte budget, until it is closed."""
    async with streaming(limited(8 * MIB, QUICK)) as service:
        other = await service.peer("blobs")
        deaf, most_bytes = await service.deaf_peer(25, records=20), 0
        await until(lambda: service.used_bytes > 3 * MIB)
        assert len(await other.answer(await other.look_up(1, *([1] * 100)))) == 100
        while len(service.handler.registry.statistics()) > 1:
            most_bytes = max(most_bytes, service.used_bytes)
            await asyncio.sleep(0.001)

        assert 3 * MIB < most_bytes <= 4 * MIB
        assert service.used_bytes == 0
    assert deaf.socket.close_code is None  # it has not even read that


async def test_slow_reader_gets_everything() -> None:
    """Lookups wait for room in the budget; no answer is dropped."""
    async with streaming(limited(2 * MIB)) as service:
        peer = await service.peer("blobs")
        sent = [await peer.look_up(sequence, *([2] * 20)) for sequence in range(1, 26)]
        await until(lambda: service.used_bytes > 0)

        for each in sent:
            assert len(await peer.answer(each)) == 20
        await until(lambda: service.used_bytes == 0)


async def test_late_reader_learns_why() -> None:
    """A peer that reads late gets the sent answers and the close; its socket is freed."""
    async with streaming(Setting(timeouts=Timeouts(send_s=0.1))) as service:
        deaf, other = await service.deaf_peer(30), await service.peer()
        assert await other.answers(7) == [{0: "fetched Ada"}]
        await until(lambda: len(service.handler.registry.statistics()) == 1)

        _, message = await deaf.read_to_the_end()
        assert (message.data, message.extra) == (
            aiohttp.WSCloseCode.TRY_AGAIN_LATER,
            "the peer reads nothing",
        )


async def test_socket_of_a_deaf_peer_is_closed() -> None:
    """A peer that does not answer the close in time is disconnected."""
    async with streaming(Setting(timeouts=QUICK)) as service:
        deaf = await service.deaf_peer(30)
        await until(lambda: not service.handler._parts.connections.values())

        _, message = await deaf.read_to_the_end()
        assert message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}


async def test_refusals_do_not_pile_up() -> None:
    """From a peer with 1,024 unread frames nothing more is read until it reads."""
    async with streaming() as service:
        deaf = await service.peer()
        (connection,) = service.handler._parts.connections.values()
        flood = asyncio.ensure_future(_flood(deaf))
        await until(lambda: len(connection._protocol._outgoing) >= MAX_QUEUED_FRAMES)
        for _ in range(1_000):  # chances to read on
            await asyncio.sleep(0)

        assert len(connection._protocol._outgoing) <= MAX_QUEUED_FRAMES + 10
        assert not flood.done()
        flood.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await flood
        while len(connection._protocol._outgoing):  # it reads, and is read from again
            await deaf.socket.receive()


async def _flood(peer: Peer) -> None:
    # Each character is ten bytes of the refusal: so the buffers between the ends fill soon.
    for number in range(2, 100_000):
        await peer.send(open_frame(number, "\U0001f600" * 100))


# The byte budget


async def test_freed_bytes_wake_waiting_lookups() -> None:
    """A lost connection makes room for waiting lookups of others."""
    async with streaming(limited(6_400)) as service:  # a hundred for each record at first
        greedy, other = await service.peer(), await service.peer()
        store = service.customers
        store.hold()
        await greedy.look_up(1, *range(1000, 1025))
        await until(lambda: queried_keys(service) == 25)
        await other.look_up(1, *range(2000, 2012))
        await until(lambda: queried_keys(service) == 37)
        await other.look_up(2, *range(3000, 3037))  # room for some only: not worth a query
        await until(lambda: len(service.handler.registry.turns) == 1)

        greedy.vanish()

        await until(lambda: queried_keys(service) > 37)


def queried_keys(service: Streaming) -> int:
    """How many keys of customers were queried."""
    return sum(map(len, queried(service.customers)))


@pytest.mark.parametrize("ending", ["timeout", "cancel"])
async def test_lookup_without_room_ends(ending: str) -> None:
    """Records that wait for room time out, which is counted, or leave without a query."""
    async with streaming() as service:
        peer, turns = await service.peer(), service.handler.registry.turns
        turns.change_held(99, 1, added_bytes=64 * MIB)  # all of it, by another connection
        held_bytes = service.used_bytes
        service.customers.hold()
        timeout_ms = 10 if ending == "timeout" else 10_000
        sent = await peer.look_up(1, 7, 8, timeout_ms=timeout_ms)  # one record always fits
        await service.customers.wait_for_fetches(1)

        if ending == "timeout":
            assert await peer.answer(sent) == {0: "timeout timeout", 1: "timeout timeout"}
            assert service.dimensions["customers"].statistics().outcomes[Outcome.TIMEOUT] == 2
        else:
            await peer.send(frames.Cancel(1, 1))
            assert await peer.receive(frames.Credit) == credit_of(sent)
        assert (service.used_bytes, len(service.handler.registry.turns)) == (held_bytes, 0)
    assert queried(service.customers) == [[7]]


# Pings


@pytest.mark.asyncio(loop_scope="module")
async def test_ping_is_answered(service: Streaming) -> None:
    """A pong has the content of its ping."""
    peer = await service.connect(autoping=False)
    await peer.socket.ping(b"are you there")
    message = await peer.socket.receive()

    assert (message.type, bytes(message.data)) == (aiohttp.WSMsgType.PONG, b"are you there")


async def test_ping_flood_ends_the_connection() -> None:
    """Pings beyond the rate limit close the connection."""
    async with streaming() as service:
        peer = await service.connect(autoping=False)
        for _ in range(PING_BURST + 1):
            await peer.socket.ping()
        pongs = 0
        while (message := await peer.socket.receive()).type is aiohttp.WSMsgType.PONG:
            pongs += 1

    assert (pongs, message.type) == (PING_BURST, aiohttp.WSMsgType.CLOSE)
    assert (message.data, message.extra) == (1008, "too many pings")


async def test_pongs_are_not_limited() -> None:
    """Pongs are not answered, and do not count."""
    async with streaming() as service:
        peer = await service.peer()
        for _ in range(10 * PING_BURST):
            await peer.socket.pong()

        assert await peer.answers(7) == [{0: "fetched Ada"}]

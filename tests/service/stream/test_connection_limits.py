"""Peers that take more than they give: no answers read, pings without end, refusals without end."""

import asyncio
from contextlib import suppress

import aiohttp
import pytest

from lookup_core.protocol import frames
from lookup_core.protocol.server_channel import BURST
from service.connectors.memory.backend import FakeBackend
from service.stream.outbox import MAX_QUEUED_FRAMES
from service.stream.stream_parts import Timeouts
from tests.service.stream.streaming import (
    BLOB_BYTES,
    Peer,
    Setting,
    Streaming,
    open_frame,
    streaming,
    until,
)

MIB = 1024 * 1024
PING, PONG = aiohttp.WSMsgType.PING, aiohttp.WSMsgType.PONG
QUICK = Timeouts(send_s=0.3, close_s=0.1)


def limited(answer_bytes: int, timeouts: Timeouts | None = None) -> Setting:
    """So many bytes for answers, and credit that is no matter."""
    return Setting(timeouts or Timeouts(), credit_bytes=512 * MIB, answer_bytes=answer_bytes)


def used_bytes(service: Streaming) -> int:
    """What is held for answers."""
    return service.handler._parts.budget.used_bytes


async def ask_in_silence(peer: Peer) -> None:
    """Ask for 500 wide rows and read nothing."""
    for sequence in range(1, 26):
        await peer.ask(sequence, *([0] * 20))


async def test_ping_is_answered() -> None:
    """With what it carries, as any WebSocket does."""
    async with streaming() as service:
        peer = await service.connect(autoping=False)
        await peer.socket.ping(b"are you there")
        message = await peer.socket.receive()

    assert (message.type, bytes(message.data)) == (PONG, b"are you there")


async def test_ping_flood_ends_the_connection() -> None:
    """A peer that only wants to be answered is sent away."""
    async with streaming() as service:
        peer = await service.connect(autoping=False)
        for _ in range(BURST + 1):
            await peer.socket.ping()
        pongs = 0
        while (message := await peer.socket.receive()).type is PONG:
            pongs += 1

    assert (pongs, message.type) == (BURST, aiohttp.WSMsgType.CLOSE)
    assert (message.data, message.extra) == (1008, "too many pings")


async def test_pongs_are_not_counted() -> None:
    """Nothing answers them; they may even be unasked for."""
    async with streaming() as service:
        peer = await service.peer()
        for _ in range(10 * BURST):
            await peer.socket.pong()

        assert await peer.answer(await peer.ask(1, 7)) == {0: "fetched Ada"}


async def test_silent_channel_stays_while_pongs_arrive() -> None:
    """Whoever answers pings is alive: a channel that is idle keeps its state, however long."""
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=0.04))) as service:
        peer = await service.connect(autoping=False)
        await peer.greet()
        await peer.open()
        await peer.send(frames.Watermark(1, 5000))
        for _ in range(10):
            assert (await peer.socket.receive()).type is PING
            await peer.socket.pong()

        (channel,) = service.handler.statistics()
        assert channel.watermark_ms == 5000


async def test_deaf_peer_holds_its_share_only() -> None:
    """However much it asked for: what it does not read is bounded in bytes, and then it is gone."""
    async with streaming(limited(8 * MIB, QUICK)) as service:
        deaf, most_bytes = await service.peer("blobs"), 0
        await ask_in_silence(deaf)
        while service.handler.statistics():
            most_bytes = max(most_bytes, used_bytes(service))
            await asyncio.sleep(0)

        assert 3 * MIB < most_bytes <= 4 * MIB
        assert used_bytes(service) == 0
    assert deaf.socket.close_code is None  # it has not even read that


async def test_deaf_peer_leaves_room_for_others() -> None:
    """While it holds its share, others are answered, wide rows as well."""
    async with streaming(limited(8 * MIB)) as service:
        deaf, other = await service.peer("blobs"), await service.peer("blobs")
        await ask_in_silence(deaf)
        await until(lambda: used_bytes(service) > 3 * MIB)

        asked = await other.ask(1, *([1] * 100))
        assert len(await other.answer(asked)) == 100


async def test_slow_reader_gets_everything() -> None:
    """Who reads at last finds all answers: each lookup has waited for room, none was dropped."""
    async with streaming(limited(2 * MIB)) as service:
        peer = await service.peer("blobs")
        asked = [await peer.ask(sequence, *([2] * 20)) for sequence in range(1, 26)]
        await until(lambda: used_bytes(service) > 0)

        for each in asked:
            assert len(await peer.answer(each)) == 20
        await until(lambda: used_bytes(service) == 0)


async def test_answers_larger_than_all_room_get_through() -> None:
    """One record at a time is always possible: small limits make slow, not stuck."""
    async with streaming(limited(1)) as service:
        peer = await service.peer("blobs")

        assert len(await peer.answer(await peer.ask(1, 0, 1, 2, 0))) == 4


async def test_refusals_do_not_pile_up() -> None:
    """A peer that reads nothing is not listened to: what it asks for would only be refused."""
    async with streaming() as service:
        deaf = await service.peer()
        (connection,) = service.handler._connections
        flood = asyncio.ensure_future(_flood(deaf))
        await until(lambda: len(connection._outbox._outgoing) >= MAX_QUEUED_FRAMES)
        for _ in range(1_000):  # chances to read on
            await asyncio.sleep(0)

        assert len(connection._outbox._outgoing) <= MAX_QUEUED_FRAMES + 10
        assert not flood.done()
        flood.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await flood
        while len(connection._outbox._outgoing):  # and when it reads, it is listened to again
            await deaf.socket.receive()


async def _flood(peer: Peer) -> None:
    for number in range(2, 100_000):
        await peer.send(open_frame(number, "nowhere"))


@pytest.mark.parametrize("limit_bytes", [MIB, 64 * MIB])
async def test_long_lookup_is_answered_in_full(limit_bytes: int) -> None:
    """Each position once, however many parts it took."""
    async with streaming(limited(limit_bytes)) as service:
        peer = await service.peer()
        words = await peer.answer(await peer.ask(1, *range(300)))

    assert len(words) == 300
    assert {word for word in words.values() if "missing" not in word} == {
        *("error ambiguous", "fetched Ada", "fetched Bert")
    }


async def test_store_that_hangs_stops_its_channel_only() -> None:
    """On one connection a channel whose lookups wait for their store leaves the others room."""
    async with streaming(limited(4 * BLOB_BYTES)) as service:
        peer = await service.peer("blobs")
        await peer.answer(await peer.ask(1, 0))  # now it is known how large its rows are
        service.stores["blobs"].hold()
        await peer.ask(2, 1)
        await peer.ask(3, 2)
        await service.stores["blobs"].wait_for_fetches(2)
        await until(lambda: len(service.handler._parts.line) == 1)
        await peer.open(2, "customers")

        answers = [
            await peer.answer(await peer.ask(sequence, 7, 8, channel=2)) for sequence in (1, 2, 3)
        ]

    assert [set(words.values()) for words in answers] == [
        {"fetched Ada", "fetched Bert"},
        {"hit Ada", "hit Bert"},
        {"hit Ada", "hit Bert"},
    ]


@pytest.mark.parametrize("ending", ["cancel", "vanish"])
async def test_bytes_that_come_free_wake_the_line(ending: str) -> None:
    """Whoever gives up, or is gone, makes room for those who were passed over."""
    async with streaming(limited(6_400)) as service:  # a hundred for each record at first
        greedy, other = await service.peer(), await service.peer()
        store, line = service.stores["customers"], service.handler._parts.line
        store.hold()
        await greedy.ask(1, *range(1000, 1025))
        await until(lambda: asked_keys(store) == 25)
        await other.ask(1, *range(2000, 2012))
        await until(lambda: asked_keys(store) == 37)
        await other.ask(2, *range(3000, 3037))  # there is room for some only: not worth a query
        await until(lambda: len(line) == 1)

        greedy.vanish() if ending == "vanish" else await greedy.send(frames.Cancel(1, 1))

        await until(lambda: asked_keys(store) > 37)


def asked_keys(store: FakeBackend) -> int:
    """How many keys the store was asked for."""
    return sum(batch.num_rows for batch in store.batches)

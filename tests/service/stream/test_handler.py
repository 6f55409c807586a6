"""The route of the streams: who is let in, and how all of them end in a drain."""

import asyncio

import aiohttp
import pytest

from lookup_core.protocol import frames
from lookup_core.protocol.frame_codec import decode_frame
from lookup_core.protocol.frames import SUBPROTOCOL
from service.stream.stream_parts import Timeouts
from tests.service.stream.streaming import Setting, streaming, until

GOING_AWAY = (aiohttp.WSCloseCode.GOING_AWAY, "draining")


@pytest.mark.parametrize("offered", [[], ["sidelook.v9"]])
async def test_subprotocol_must_be_offered(offered: list[str]) -> None:
    """A client that did not ask for this protocol is told to."""
    async with streaming() as service:
        socket = await service.session.ws_connect("/v1/stream", protocols=offered)
        message = await socket.receive()

    assert (socket.close_code, message.extra) == (
        aiohttp.WSCloseCode.PROTOCOL_ERROR,
        f"offer the subprotocol {SUBPROTOCOL}",
    )


async def test_plain_request_is_no_stream() -> None:
    """Without the upgrade there is nothing to serve."""
    async with streaming() as service, service.session.get("/v1/stream") as response:
        assert response.status == 400


async def test_compression_is_not_negotiated() -> None:
    """A deflate bomb finds nobody who would inflate it."""
    async with streaming() as service:
        socket = await service.session.ws_connect(
            "/v1/stream", protocols=[SUBPROTOCOL], compress=15
        )

        assert socket.compress == 0


async def test_drain_answers_what_is_in_flight() -> None:
    """GOAWAY comes first, then the answers to what was asked, then the end."""
    async with streaming() as service:
        peer, store = await service.peer(), service.stores["customers"]
        store.hold()
        asked = await peer.ask(1, 7)
        await store.wait_for_fetches(1)
        drain = asyncio.ensure_future(service.handler.drain(5.0))

        assert await peer.receive(frames.Goaway) == frames.Goaway("draining")
        store.release()
        assert await peer.answer(asked) == {0: "fetched Ada"}
        assert await peer.closed() == GOING_AWAY
        await drain
        assert service.handler.statistics() == []


async def test_drain_sends_what_was_answered() -> None:
    """Answers that the peer has not read yet are in flight, too."""
    async with streaming() as service:
        peer = await service.peer("blobs")
        for sequence in range(1, 31):
            await peer.ask(sequence, 0)  # more than fits between the two ends
        await service.stores["blobs"].wait_for_fetches(1)
        drain = asyncio.ensure_future(service.handler.drain(5.0))
        await asyncio.sleep(0)  # it begins

        received = []
        while (message := await peer.socket.receive()).type is aiohttp.WSMsgType.BINARY:
            received.append(decode_frame(message.data))
        await drain

    answered = [each.sequence for each in received if isinstance(each, frames.Result)]
    assert answered == list(range(1, 31))
    assert (peer.socket.close_code, message.extra) == GOING_AWAY


async def test_drain_has_an_end() -> None:
    """What is not answered in time is not waited for: its client asks somebody else."""
    async with streaming(Setting(timeouts=Timeouts(close_s=0.1))) as service:
        peer, store = await service.peer(), service.stores["customers"]
        store.hold()
        await peer.ask(1, 7)
        await store.wait_for_fetches(1)

        await service.handler.drain(0.01)

        await peer.receive(frames.Goaway)
        assert await peer.closed() == GOING_AWAY
        await service.wait_until_empty()


async def test_drain_does_not_wait_for_the_deaf() -> None:
    """Peers that do not answer the close are given up, all of them at the same time."""
    async with streaming(Setting(timeouts=Timeouts(close_s=0.1))) as service:
        peers = [await service.peer("blobs") for _ in range(5)]
        for peer in peers:
            for sequence in range(1, 31):
                await peer.ask(sequence, 0)

        async with asyncio.timeout(3.0):
            await service.handler.drain(0.01)

        await service.wait_until_empty()  # the drain gives up when each of them does


async def test_drain_ends_what_has_not_begun() -> None:
    """A client that was not welcomed yet gets no GOAWAY, which it would not expect."""
    async with streaming() as service:
        peer = await service.connect()
        drain = asyncio.ensure_future(service.handler.drain(5.0))

        assert await peer.closed() == GOING_AWAY
        await drain


async def test_late_connection_ends_at_once() -> None:
    """Whoever was let in just before the drain is sent away, too."""
    async with streaming() as service:
        await service.handler.drain(5.0)
        peer = await service.connect()

        assert await peer.closed() == GOING_AWAY


async def test_drain_of_nobody_is_short() -> None:
    """Without streams there is nothing to wait for."""
    async with streaming() as service:
        await service.handler.drain(30.0)


async def test_frozen_peer_is_noticed() -> None:
    """A peer that answers no ping is gone, whatever its connection looks like."""
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=0.05))) as service:
        peer = await service.connect(autoping=False)
        await peer.greet()
        await peer.open()

        await service.wait_until_empty()


async def test_descriptor_of_a_deaf_peer_is_freed() -> None:
    """What a peer does not read must not keep its connection open at this end."""
    async with streaming(Setting(timeouts=Timeouts(send_s=0.1, close_s=0.1))) as service:
        peer = await service.peer("blobs")
        for sequence in range(1, 31):
            await peer.ask(sequence, 0)
        await until(lambda: not service.handler._connections)

        while (message := await peer.socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass  # what had already left
        assert message.type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}

"""One connection and its channels: open, look up, cancel, close, event time, loss and drain."""

import asyncio
from dataclasses import replace

import aiohttp
import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.dimension.dimension_events import Submitted, UnfitRows
from lookup_core.errors import ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import decode_batch
from lookup_core.protocol.channel_registry import SILENT_S
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import SUBPROTOCOL
from lookup_core.settings import Match
from service.engine.dimension import Dimension
from service.stream.connection import Timeouts
from tests.service.engine.running import settings
from tests.service.stream.streaming import (
    Peer,
    Setting,
    Streaming,
    credit_of,
    lookup_frame,
    open_frame,
    streaming,
    until,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY_TYPE = ErrorCode.KEY_TYPE
OF = 'dimension "customers": '
PAIR = pa.schema({"id": pa.int64(), "n": pa.int64()})
GOING_AWAY = (aiohttp.WSCloseCode.GOING_AWAY, "draining")
SLOW_TO_DESCRIBE = Setting(timeouts=Timeouts(describe_s=5.0))
QUICK_CLOSE = Setting(timeouts=Timeouts(close_s=0.1))


# Upgrade and greeting


@pytest.mark.parametrize("offered", [[], ["sidelook.v9"]])
async def test_subprotocol_must_be_offered(service: Streaming, offered: list[str]) -> None:
    """A WebSocket without the subprotocol is closed; the reason names it."""
    socket = await service.session.ws_connect("/v1/stream", protocols=offered)
    message = await socket.receive()

    assert (socket.close_code, message.extra) == (
        aiohttp.WSCloseCode.PROTOCOL_ERROR,
        f"offer the subprotocol {SUBPROTOCOL}",
    )


async def test_compression_is_not_negotiated(service: Streaming) -> None:
    """Compression is refused, so that no message can inflate."""
    socket = await service.session.ws_connect("/v1/stream", protocols=[SUBPROTOCOL], compress=15)

    assert socket.compress == 0


async def test_silent_client_is_closed() -> None:
    """A client without HELLO in time is closed."""
    async with streaming(Setting(timeouts=Timeouts(hello_s=0.01))) as service:
        peer = await service.connect()

        assert await peer.closed() == (aiohttp.WSCloseCode.POLICY_VIOLATION, "no HELLO in time")


async def test_client_may_leave_at_any_time(service: Streaming) -> None:
    """A close is answered with a close."""
    peer = await service.connect()

    await peer.socket.close()

    assert peer.socket.close_code == aiohttp.WSCloseCode.OK


# Opening channels


async def test_opened_names_columns_and_credit(service: Streaming) -> None:
    """OPENED has the wanted columns in their order, the key's names and the exclusive credit."""
    setting = Setting()
    ledger = CreditLedger[int](setting.credit_bytes, max_channels=setting.max_channels)
    peer = await service.greeted()

    assert await peer.open(7, columns=("tier", "name")) == frames.Opened(
        7,
        ledger.share.records,
        ledger.share.bytes,
        pa.schema({"tier": pa.int32(), "name": pa.utf8()}),
        ("id",),
    )


async def test_opened_has_the_default_row() -> None:
    """On request, with the channel's columns; `match: all` is stated to every client."""
    chosen = replace(settings(), match=Match.ALL, default={"tier": 7})
    async with streaming(Setting(customers=chosen)) as service:
        peer = await service.greeted()
        silent = await peer.open(1)
        await peer.send(replace(open_frame(2, columns=("name", "tier")), wants_default=True))
        wanted = await peer.receive(frames.Opened)
        await peer.send(replace(open_frame(3, columns=("name",)), wants_default=True))
        narrow = await peer.receive(frames.Opened)

    assert (silent.has_all_rows, silent.default) == (True, None)
    rows = [
        decode_batch(opened.default, opened.columns).to_pydict()
        for opened in (wanted, narrow)
        if opened.default is not None
    ]
    assert rows == [{"name": [None], "tier": [7]}, {"name": [None]}]


async def test_reason_names_the_column(service: Streaming) -> None:
    """On request, the reason of an error precedes its answers, once until it changes."""
    unfit = [
        UnfitRows(ErrorCode.VALUE_REJECTED, np.zeros(1, np.int32), f"column {name}")
        for name in ("name", "name", "tier")
    ]
    peer = await service.greeted()
    await peer.send(replace(open_frame(1), wants_reasons=True))
    peer.columns = (await peer.receive(frames.Opened)).columns
    silent = await service.greeted()
    await silent.open(1)

    found: list[object] = []
    for sequence, service.customers.next_unfit in enumerate(unfit, 1):
        await peer.look_up(sequence, 7)
        while not found or not isinstance(found[-1], frames.Result):
            found.append(await peer.frame())
        found[-1] = "result"
    service.customers.next_unfit = unfit[0]
    unexplained = await silent.answer(await silent.look_up(1, 7))

    reasons = [each for each in found if not isinstance(each, frames.Credit)]
    assert reasons == [
        frames.Reason(1, "value_rejected", "column name"),
        *("result", "result"),
        frames.Reason(1, "value_rejected", "column tier"),
        "result",
    ]
    assert unexplained == {0: "error value_rejected"}


async def test_large_default_is_refused() -> None:
    """A default row that no description can carry is an error with its size."""
    chosen = replace(settings(), default={"name": "x" * 50_000})
    async with streaming(Setting(customers=chosen)) as service:
        peer = await service.greeted()
        await peer.send(replace(open_frame(1), wants_default=True))
        failure = await peer.receive(frames.Failure)

    assert (failure.code, failure.is_retryable) == (ErrorCode.BAD_REQUEST, False)
    assert "the default row has 50" in failure.detail


@pytest.mark.parametrize(
    ("opening", "code", "detail"),
    [
        (open_frame(9, "nowhere"), ErrorCode.UNKNOWN_DIMENSION, "no dimension 'nowhere'"),
        (open_frame(9, columns=("name", "nam")), ErrorCode.UNKNOWN_COLUMN, f'{OF}column "nam"'),
        (open_frame(9, key=pa.schema({"id": pa.utf8()})), KEY_TYPE, f'{OF}key "id"'),
        (open_frame(9, key=PAIR), KEY_TYPE, f"{OF}the key is (id), not (id, n)"),
        (open_frame(9, "orders"), ErrorCode.BACKEND_UNAVAILABLE, ""),
    ],
    ids=["dimension", "column", "key type", "key fields", "backend down"],
)
async def test_refused_channel_leaves_the_others(
    peer: Peer, opening: frames.Open, code: ErrorCode, detail: str
) -> None:
    """ERROR names the dimension and what it lacks; other channels are not affected."""
    await peer.send(opening)

    failure = await peer.receive(frames.Failure)
    assert (failure.channel, failure.code) == (9, code)
    assert failure.is_retryable is (code is ErrorCode.BACKEND_UNAVAILABLE)
    assert failure.detail.startswith(detail)
    assert await peer.answers(7) == [{0: "fetched Ada"}]


async def test_silent_channel_makes_room() -> None:
    """A new channel gets the share of a silent one of another connection, which opens again."""
    async with streaming(Setting(max_channels=1)) as service:
        silent, other = await service.peer(), await service.greeted()
        service.clock.ahead_s += SILENT_S + 1
        await other.open(1)
        ended = await silent.receive(frames.Failure)
        await silent.send(lookup_frame(1, 7), frames.Watermark(1, 5))
        service.clock.ahead_s += SILENT_S + 1
        await silent.open(1)

        assert await silent.answers(7) == [{0: "fetched Ada"}]
    assert (ended.channel, ended.code, ended.is_retryable) == (1, ErrorCode.OVERLOADED, True)


async def test_requested_channel_may_close_and_open_again() -> None:
    """Each CLOSE of a channel that waits for its backend is answered, and frees its number."""
    async with streaming(SLOW_TO_DESCRIBE) as service:
        peer = await service.peer()
        for _ in range(3):
            await peer.send(open_frame(2, "orders"), frames.Close(2))

        assert [await peer.frame() for _ in range(3)] == [frames.Closed(2)] * 3
        assert (await peer.open(2)).channel == 2


# Lookups


async def test_hits_do_not_wait_for_misses(service: Streaming, peer: Peer) -> None:
    """Cached rows are sent at once with their credit, in a RESULT that is not the last."""
    await peer.answers(7)
    service.customers.hold()

    sent = await peer.look_up(2, 7, 8, 7)
    size = len(sent.payload)
    assert await peer.receive(frames.Credit) == frames.Credit(1, 2, 2 * size // 3)
    first, words = await peer.result()
    assert (words, first.is_last) == ({0: "hit Ada", 2: "hit Ada"}, False)
    service.customers.release()
    assert await peer.receive(frames.Credit) == frames.Credit(1, 1, size - 2 * size // 3)
    last, words = await peer.result()
    assert (words, last.is_last) == ({1: "fetched Bert"}, True)


async def test_overload_is_an_outcome() -> None:
    """When too many keys are queued, the records of the lookup fail, but not the channel."""
    async with streaming(Setting(customers=settings(keys=1))) as service:
        peer = await service.peer()

        assert await peer.answer(await peer.look_up(1, 7, 8)) == {
            0: "error overloaded",
            1: "error overloaded",
        }
        assert await peer.answer(await peer.look_up(2, 7)) == {0: "fetched Ada"}


async def test_time_of_a_part_is_learned(service: Streaming, peer: Peer) -> None:
    """The thread time of a part changes the expected time of the channel's records."""
    (channel,) = service.handler.registry._channels.values()
    before = channel.costs.time.record_s

    await peer.answers(7)

    assert channel.costs.time.record_s != before


# Cancel and close


async def test_cancel_returns_credit_without_an_answer(service: Streaming, peer: Peer) -> None:
    """A cancelled lookup gets its credit and no RESULT; its query is cancelled."""
    service.customers.hold()
    sent = await peer.look_up(1, 7)
    await service.customers.wait_for_fetches(1)

    await peer.send(frames.Cancel(1, 1), frames.Cancel(1, 1), frames.Cancel(5, 1), frames.Close(5))

    assert await peer.receive(frames.Credit) == credit_of(sent)
    await until(lambda: service.customers.cancelled_total == 1)
    assert timed_out(service) == 0
    service.customers.release()
    assert await peer.answer(await peer.look_up(2, 7)) == {0: "fetched Ada"}


def timed_out(service: Streaming) -> int:
    """How many keys of customers timed out."""
    return int(service.dimensions["customers"].statistics().outcomes[Outcome.TIMEOUT])


# Event time


async def test_streams_of_a_dimension_have_one_watermark() -> None:
    """The watermark is the least of all active channels, and is kept when they end."""
    async with streaming() as service:
        first, second = await service.peer(), await service.peer()
        await first.send(frames.Watermark(1, 5000))
        await second.send(frames.Watermark(1, 4000))
        watermarks_ms = service.handler.watermarks_ms
        await until(lambda: watermarks_ms() == {"customers": 4000})

        await second.send(frames.Status(1, is_idle=True))
        await until(lambda: watermarks_ms() == {"customers": 5000})
        second.vanish()
        first.vanish()
        await service.wait_until_empty()

        assert watermarks_ms() == {"customers": 5000}


# Lost connections


async def test_lost_connection_leaves_nothing(service: Streaming, peer: Peer) -> None:
    """A lost connection ends its lookups and queries, and returns its credit."""
    service.customers.hold()
    await peer.look_up(1, 7)
    await peer.send(open_frame(2, "orders"))
    await service.customers.wait_for_fetches(1)

    peer.vanish()

    await service.wait_until_empty()
    await until(lambda: service.customers.cancelled_total == 1)


class DefectiveDimension(Dimension):
    """A dimension with a defect in `submit`."""

    def submit(self, *_: object, **__: object) -> Submitted:
        """Fail."""
        raise ZeroDivisionError


async def test_defect_ends_its_connection_only() -> None:
    """A defect of the service closes the connection with 1011; others are served."""
    async with streaming(Setting(make=DefectiveDimension)) as service:
        peer = await service.peer()
        await peer.look_up(1, 7)

        assert await peer.closed() == (
            aiohttp.WSCloseCode.INTERNAL_ERROR,
            "internal error of the service",
        )
        await service.wait_until_empty()
        await service.peer()


async def test_unanswered_ping_ends_the_connection() -> None:
    """A peer that answers no ping is disconnected; one that answers stays connected."""
    async with streaming(Setting(timeouts=Timeouts(heartbeat_s=0.5))) as service:
        frozen, quiet = await service.connect(autoping=False), await service.connect(autoping=False)
        for each in (frozen, quiet):
            await each.greet()
            await each.open()
        await quiet.send(frames.Watermark(1, 5000))
        for _ in range(10):
            assert (await quiet.socket.receive()).type is aiohttp.WSMsgType.PING
            await quiet.socket.pong()

        assert [each.watermark_ms for each in service.handler.registry.statistics()] == [5000]


# Drain


async def test_drain_answers_lookups_in_flight() -> None:
    """GOAWAY comes first, then the answers to what was sent, then the close."""
    async with streaming() as service:
        peer = await service.peer()
        service.customers.hold()
        sent = await peer.look_up(1, 7)
        await service.customers.wait_for_fetches(1)
        drain = asyncio.ensure_future(service.handler.drain(5.0))

        assert await peer.receive(frames.Goaway) == frames.Goaway("draining")
        service.customers.release()
        assert await peer.answer(sent) == {0: "fetched Ada"}
        assert await peer.closed() == GOING_AWAY
        await drain
        assert service.handler.registry.statistics() == []


async def test_drain_sends_unread_answers() -> None:
    """Answers that the peer has not read yet are sent before the close."""
    async with streaming() as service:
        peer = await service.deaf_peer(30)
        await service.stores["blobs"].wait_for_fetches(1)
        drain = asyncio.ensure_future(service.handler.drain(5.0))
        await asyncio.sleep(0)  # it begins

        received, message = await peer.read_to_the_end()
        await drain

    answered = [each.sequence for each in received if isinstance(each, frames.Result)]
    assert answered == list(range(1, 31))
    assert (peer.socket.close_code, message.extra) == GOING_AWAY


async def test_drain_does_not_wait_for_deaf_peers() -> None:
    """Peers that do not answer the close are disconnected, all at the same time."""
    async with streaming(QUICK_CLOSE) as service:
        for _ in range(5):
            await service.deaf_peer(30)

        await service.handler.drain(0.01)

        await service.wait_until_empty()


async def test_drain_closes_connections_without_hello() -> None:
    """A connection before WELCOME, or after the drain began, is closed without GOAWAY."""
    async with streaming() as service:
        early = await service.connect()
        drain = asyncio.ensure_future(service.handler.drain(30.0))
        assert await early.closed() == GOING_AWAY
        await drain
        late = await service.connect()

        assert await late.closed() == GOING_AWAY

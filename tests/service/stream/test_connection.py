"""One peer of the streaming protocol: what it may say, and what comes back."""

from collections.abc import AsyncIterator

import aiohttp
import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.credit_ledger import CreditLedger
from lookup_core.protocol.frames import Frame
from service.engine.dimension import Dimension
from service.engine.gathering import Submitted
from service.stream.connection import MAX_CHANNELS
from service.stream.stream_parts import Timeouts
from tests.service.engine.running import SCHEMA, settings
from tests.service.stream.streaming import (
    AGENT,
    Peer,
    Setting,
    Streaming,
    credit_of,
    lookup_frame,
    open_frame,
    streaming,
    until,
)

KEY_TYPE = ErrorCode.KEY_TYPE
PROTOCOL_ERROR = aiohttp.WSCloseCode.PROTOCOL_ERROR
SETTING = Setting()
SHARE = CreditLedger[int](SETTING.credit_bytes, max_channels=SETTING.max_channels).share


@pytest.fixture
async def service() -> AsyncIterator[Streaming]:
    """A service with the dimensions `customers`, `blobs` and `orders`, which is down."""
    async with streaming() as running:
        yield running


@pytest.fixture
async def peer(service: Streaming) -> Peer:
    """A peer with channel 1 to `customers`."""
    return await service.peer()


async def refused(service: Streaming, peer: Peer) -> str:
    """The reason of a close with code 1002; asserts that nothing of the peer is left."""
    code, reason = await peer.closed()
    assert code == PROTOCOL_ERROR
    await service.wait_until_empty()
    return reason


# The greeting


async def test_hello_is_welcomed(service: Streaming) -> None:
    """A client that speaks the version is told who answers."""
    peer = await service.connect()

    await peer.send(frames.Hello((3, frames.PROTOCOL_VERSION), "a test"))

    assert await peer.receive(frames.Welcome) == frames.Welcome(frames.PROTOCOL_VERSION, AGENT)


async def test_unknown_version_names_both_sides(service: Streaming) -> None:
    """A client of another version is told which ones the two speak."""
    peer = await service.connect()

    await peer.send(frames.Hello((2, 3), "client/9"))

    assert await refused(service, peer) == (
        f"unsupported_version: this service ({AGENT}) speaks 1, the client (client/9) [2, 3]"
    )


async def test_long_reason_is_cut_between_characters(service: Streaming) -> None:
    """Whatever the client calls itself, the reason fits and is text."""
    peer = await service.connect()

    await peer.send(frames.Hello((2,), "x" + "é" * 200))

    reason = await refused(service, peer)
    assert len(reason.encode()) in {119, 120}
    assert reason.endswith("é")


@pytest.mark.parametrize("frame", [open_frame(), lookup_frame(1, 7), frames.Close(1)])
async def test_first_frame_must_be_hello(service: Streaming, frame: Frame) -> None:
    """Nothing is taken from a client that did not introduce itself."""
    peer = await service.connect()

    await peer.send(frame)

    assert await refused(service, peer) == "bad_frame: the first frame must be HELLO"


async def test_silent_client_is_closed() -> None:
    """A client that says nothing does not keep its connection."""
    async with streaming(Setting(timeouts=Timeouts(hello_s=0.01))) as service:
        peer = await service.connect()

        assert await peer.closed() == (
            aiohttp.WSCloseCode.POLICY_VIOLATION,
            "no HELLO in time",
        )


async def test_client_may_leave_before_hello(service: Streaming) -> None:
    """A connection that is closed at once is none that was broken."""
    peer = await service.connect()

    await peer.socket.close()

    assert peer.socket.close_code == aiohttp.WSCloseCode.OK


# What is no frame


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "bad_frame: a frame has at least 16 bytes, this one 0 (at byte 0)"),
        (b"\x03\x00\x00", "bad_frame: a frame has at least 16 bytes, this one 3 (at byte 0)"),
        (b"\xff" * 40, "bad_frame: unknown frame kind 255 (at byte 0)"),
    ],
)
async def test_garbage_ends_the_connection(
    service: Streaming, peer: Peer, message: bytes, reason: str
) -> None:
    """Bytes that are no frame are refused, with the place."""
    await peer.socket.send_bytes(message)

    assert await refused(service, peer) == reason


async def test_text_ends_the_connection(service: Streaming, peer: Peer) -> None:
    """Frames are binary messages."""
    await peer.socket.send_str("hello")

    assert await refused(service, peer) == "bad_frame: frames are binary messages"


@pytest.mark.parametrize(
    "frame",
    [frames.Hello((1,), "again"), frames.Welcome(1, "me"), frames.Credit(1, 5, 5)],
)
async def test_frames_out_of_place_end_the_connection(
    service: Streaming, peer: Peer, frame: Frame
) -> None:
    """A second HELLO, and whatever only a service sends, are refused."""
    await peer.send(frame)

    kind = type(frame).__name__.upper()
    assert await refused(service, peer) == f"bad_frame: a client never sends {kind} here"


async def test_oversized_message_ends_the_connection() -> None:
    """A message beyond the limit is not even read."""
    async with streaming(Setting(max_message_bytes=10_000)) as service:
        peer = await service.peer()

        await peer.socket.send_bytes(bytes(10_001))

        assert (await peer.closed())[0] == aiohttp.WSCloseCode.MESSAGE_TOO_BIG
        await service.wait_until_empty()


# Opening


async def test_opened_tells_columns_and_credit(service: Streaming) -> None:
    """A channel offers the columns asked for, in that order, and what may be sent."""
    peer = await service.connect()
    await peer.greet()

    await peer.send(open_frame(7, columns=("tier", "name")))

    assert await peer.receive(frames.Opened) == frames.Opened(
        7, SHARE.records, SHARE.bytes, pa.schema({"tier": pa.int32(), "name": pa.utf8()}), ("id",)
    )


@pytest.mark.parametrize(
    ("opening", "code", "is_retryable"),
    [
        (open_frame(9, "nowhere"), ErrorCode.UNKNOWN_DIMENSION, False),
        (open_frame(9, columns=("name", "nam")), ErrorCode.UNKNOWN_COLUMN, False),
        (open_frame(9, key=pa.schema({"id": pa.utf8()})), KEY_TYPE, False),
        (open_frame(9, key=pa.schema({"id": pa.int64(), "n": pa.int64()})), KEY_TYPE, False),
        (open_frame(9, "orders"), ErrorCode.BACKEND_UNAVAILABLE, True),
    ],
    ids=["dimension", "column", "key type", "key fields", "store down"],
)
async def test_refused_channel_leaves_the_others(
    peer: Peer, opening: frames.Open, code: ErrorCode, *, is_retryable: bool
) -> None:
    """What cannot be opened is told why; the connection and its channels go on."""
    await peer.send(opening)

    failure = await peer.receive(frames.Failure)
    assert (failure.channel, failure.code, failure.is_retryable) == (9, code, is_retryable)
    assert await peer.answer(await peer.ask(1, 7)) == {0: "fetched Ada"}


async def test_key_may_have_the_name_of_the_records(service: Streaming) -> None:
    """A client that knows its own names only has its key read by position."""
    peer = await service.connect()
    await peer.greet()
    await peer.send(open_frame(1, key=pa.schema({"customer_id": pa.int32()})))
    await peer.receive(frames.Opened)
    keys = pa.record_batch({"customer_id": pa.array([7, 9], pa.int32())})
    asked = frames.Lookup(1, 1, 1000, 0, encode_batch(keys))
    await peer.send(asked)

    _, words = await peer.result()
    assert words == {0: "fetched Ada"}


async def test_channel_without_a_key_describes(service: Streaming) -> None:
    """Who does not know the key's names yet may ask for the columns alone, but look nothing up."""
    peer = await service.connect()
    await peer.greet()
    await peer.send(open_frame(1, columns=("name",), key=pa.schema([])))

    assert (await peer.receive(frames.Opened)).columns == pa.schema({"name": pa.utf8()})
    await peer.ask(1, 7)
    assert await refused(service, peer) == "bad_frame: LOOKUP on a channel without a key"


async def test_too_many_channels_are_refused() -> None:
    """Beyond the limit a channel is refused for now; one that ends makes room."""
    async with streaming(Setting(max_channels=1)) as service:
        peer = await service.peer()
        await peer.send(open_frame(2))
        failure = await peer.receive(frames.Failure)

        assert (failure.code, failure.is_retryable) == (ErrorCode.OVERLOADED, True)
        await peer.send(frames.Close(1))
        await peer.receive(frames.Closed)
        assert (await peer.open(2)).channel == 2


async def test_one_peer_has_a_bounded_number_of_channels() -> None:
    """A peer that opens channels without end is sent away; those that wait to stand count, too."""
    async with streaming(Setting(timeouts=Timeouts(describe_s=5.0))) as service:
        peer = await service.peer()
        for channel in range(2, MAX_CHANNELS + 1):
            await peer.send(open_frame(channel, "orders"))
        assert await peer.answer(await peer.ask(1, 7)) == {0: "fetched Ada"}

        await peer.send(open_frame(MAX_CHANNELS + 1))

        too_many = (aiohttp.WSCloseCode.TRY_AGAIN_LATER, "more than 64 channels")
        assert await peer.closed() == too_many
        await service.wait_until_empty()


@pytest.mark.parametrize("dimension", ["customers", "orders"])
async def test_channel_is_opened_once(service: Streaming, dimension: str) -> None:
    """A number that is in use, or about to be, cannot be opened again."""
    peer = await service.connect()
    await peer.greet()

    await peer.send(open_frame(1, dimension), open_frame(1, dimension))

    while (message := await peer.socket.receive()).type is aiohttp.WSMsgType.BINARY:
        pass  # OPENED may have been quicker
    assert message.type is aiohttp.WSMsgType.CLOSE
    assert message.extra == "bad_frame: channel 1 is open already"
    await service.wait_until_empty()


# Lookups


async def test_lookup_is_answered(peer: Peer) -> None:
    """Each row of the batch has its outcome; the credit comes back with the last."""
    asked = await peer.ask(1, 7, None, 9, 6, 8)

    assert await peer.answer(asked) == {
        0: "fetched Ada",
        1: "missing",
        2: "missing",
        3: "error ambiguous",
        4: "fetched Bert",
    }
    assert await peer.answer(await peer.ask(2, 7, 9)) == {0: "hit Ada", 1: "missing"}


async def test_hits_do_not_wait_for_misses(service: Streaming, peer: Peer) -> None:
    """What is cached is answered at once, while the rest is still being fetched."""
    await peer.answer(await peer.ask(1, 7))
    service.stores["customers"].hold()

    asked = await peer.ask(2, 7, 8)
    first, words = await peer.result()
    assert (words, first.is_last) == ({0: "hit Ada"}, False)
    service.stores["customers"].release()
    assert await peer.last_result(asked) == {1: "fetched Bert"}


async def test_lookup_of_no_keys_is_answered(peer: Peer) -> None:
    """An empty batch has an empty answer, which is its last."""
    assert await peer.answer(await peer.ask(1)) == {}


async def test_channels_go_their_own_ways(service: Streaming, peer: Peer) -> None:
    """A channel that waits for its store does not hold up another one."""
    service.stores["blobs"].hold()
    await peer.open(2, "blobs")
    await peer.ask(1, 0, channel=2)
    peer.columns = SCHEMA.columns

    assert await peer.answer(await peer.ask(1, 7)) == {0: "fetched Ada"}


async def test_lookup_has_its_own_time(service: Streaming, peer: Peer) -> None:
    """What is not answered in the time that the frame names is a timeout."""
    service.stores["customers"].hold()

    asked = await peer.ask(1, 7, 8, timeout_ms=10)

    assert await peer.answer(asked) == {0: "timeout timeout", 1: "timeout timeout"}


async def test_overload_is_an_outcome() -> None:
    """When too many keys wait, each key of the lookup is told so; the channel goes on."""
    async with streaming(Setting(customers=settings(keys=1))) as service:
        peer = await service.peer()

        assert await peer.answer(await peer.ask(1, 7, 8)) == {
            0: "error overloaded",
            1: "error overloaded",
        }
        assert await peer.answer(await peer.ask(2, 7)) == {0: "fetched Ada"}


# Violations


async def test_sequence_gap_ends_the_connection(service: Streaming, peer: Peer) -> None:
    """A lookup that was lost on the way cannot be answered."""
    await peer.ask(2, 7)

    assert await refused(service, peer) == "seq_gap: expected 1, got 2"


async def test_unknown_channel_ends_the_connection(service: Streaming, peer: Peer) -> None:
    """A lookup, watermark or status of a channel that is not open is a break of the protocol."""
    await peer.ask(1, 7, channel=5)

    assert await refused(service, peer) == "unknown_channel: channel 5 is not open"


async def test_wrong_payload_ends_the_connection(service: Streaming, peer: Peer) -> None:
    """Keys that are not what the channel was opened for are refused before anything is done."""
    batch = pa.record_batch({"id": pa.array([7] * 100, pa.int8())})
    await peer.send(frames.Lookup(1, 1, 1000, 0, encode_batch(batch)))

    assert (await refused(service, peer)).startswith("bad_frame: the payload is not a record batch")
    assert service.stores["customers"].batches == []


async def test_too_much_ends_the_connection(service: Streaming, peer: Peer) -> None:
    """More records than there is credit for are not looked up."""
    await peer.ask(1, *range(20_001))

    assert (await refused(service, peer)).startswith("credit_violation: 20001 records of ")
    assert service.stores["customers"].batches == []


async def test_violation_leaves_other_peers(service: Streaming, peer: Peer) -> None:
    """Whoever breaks the protocol is the only one to feel it."""
    other = await service.peer()
    await other.socket.send_str("hello")
    await other.closed()

    assert await peer.answer(await peer.ask(1, 7)) == {0: "fetched Ada"}


# Cancel and close


async def test_cancelled_lookup_gives_its_credit_back(service: Streaming, peer: Peer) -> None:
    """Nobody waits for it any more: no answer comes, and the query at the store ends."""
    store = service.stores["customers"]
    store.hold()
    asked = await peer.ask(1, 7)
    await store.wait_for_fetches(1)

    await peer.send(frames.Cancel(1, 1))

    assert await peer.receive(frames.Credit) == credit_of(asked)
    await until(lambda: store.cancelled_total == 1)
    store.release()
    assert await peer.answer(await peer.ask(2, 7)) == {0: "fetched Ada"}


async def test_late_cancel_is_harmless(peer: Peer) -> None:
    """A CANCEL that met the answer, or the end of its channel, on its way changes nothing."""
    await peer.answer(await peer.ask(1, 7))
    await peer.send(frames.Cancel(1, 1), frames.Cancel(5, 1), frames.Close(5))

    assert await peer.answer(await peer.ask(2, 7)) == {0: "hit Ada"}


async def test_closed_follows_the_last_answer(service: Streaming, peer: Peer) -> None:
    """What was asked before CLOSE is answered before CLOSED, and then the channel is gone."""
    service.stores["customers"].hold()
    asked = await peer.ask(1, 7)
    await peer.send(frames.Close(1), frames.Close(1))
    service.stores["customers"].release()

    assert await peer.answer(asked) == {0: "fetched Ada"}
    assert await peer.receive(frames.Closed) == frames.Closed(1)
    assert service.handler.statistics() == []


async def test_quiet_channel_closes_at_once(service: Streaming, peer: Peer) -> None:
    """A channel without lookups under way closes at once; its credit is there for others."""
    await peer.send(frames.Close(1))

    assert await peer.receive(frames.Closed) == frames.Closed(1)
    assert service.handler.statistics() == []


async def test_nothing_is_asked_after_close(service: Streaming, peer: Peer) -> None:
    """A lookup behind CLOSE breaks the protocol."""
    service.stores["customers"].hold()
    await peer.ask(1, 7)
    await peer.send(frames.Close(1))
    await peer.ask(2, 8)

    assert await refused(service, peer) == "unknown_channel: LOOKUP after CLOSE on 1"


@pytest.mark.parametrize("frame", [frames.Watermark(1, 5), frames.Status(1, is_idle=True)])
async def test_nothing_is_told_after_close(
    service: Streaming, peer: Peer, frame: frames.Watermark | frames.Status
) -> None:
    """A watermark or status behind CLOSE breaks the protocol, as a lookup does."""
    service.stores["customers"].hold()
    await peer.ask(1, 7)
    await peer.send(frames.Close(1), frame)

    kind = type(frame).__name__.upper()
    assert await refused(service, peer) == f"unknown_channel: {kind} after CLOSE on 1"


async def test_channel_can_close_before_it_stands() -> None:
    """A client that changes its mind need not wait for a store that is down."""
    async with streaming(Setting(timeouts=Timeouts(describe_s=5.0))) as service:
        peer = await service.peer()
        await peer.send(open_frame(2, "orders"), frames.Close(2))

        assert await peer.receive(frames.Closed) == frames.Closed(2)
        assert (await peer.open(2)).channel == 2


async def test_long_lived_connection_opens_many_channels() -> None:
    """Channels that were closed cost nothing: a worker may run any number of tasks."""
    async with streaming(Setting(max_channels=2, credit_bytes=2 * 1024 * 1024)) as service:
        peer = await service.connect()
        await peer.greet()

        for number in range(1, 40):
            await peer.open(number)
            await peer.send(frames.Close(number))
            assert await peer.receive(frames.Closed) == frames.Closed(number)


# Time and idleness


async def test_watermark_and_idleness_are_noted(service: Streaming, peer: Peer) -> None:
    """What a channel tells of its time can be seen; it needs no credit."""
    await peer.send(
        frames.Watermark(1, 5000), frames.Watermark(1, 4000), frames.Status(1, is_idle=True)
    )
    await peer.answer(await peer.ask(1, 7))

    (channel,) = service.handler.statistics()
    assert (channel.watermark_ms, channel.is_idle) == (5000, True)
    assert (channel.dimension, channel.origin) == ("customers", "a test")
    await peer.send(frames.Status(1, is_idle=False))
    await until(lambda: not service.handler.statistics()[0].is_idle)


async def test_streams_have_one_watermark(service: Streaming, peer: Peer) -> None:
    """It is the least of the active channels, over all connections, and stays when they end."""
    other = await service.peer()
    await peer.send(frames.Watermark(1, 5000))
    await other.send(frames.Watermark(1, 4000))
    await until(lambda: service.handler.watermarks_ms() == {"customers": 4000})

    await other.send(frames.Status(1, is_idle=True))
    await until(lambda: service.handler.watermarks_ms() == {"customers": 5000})
    other.vanish()
    peer.vanish()
    await service.wait_until_empty()

    assert service.handler.watermarks_ms() == {"customers": 5000}


@pytest.mark.parametrize("frame", [frames.Watermark(5, 1), frames.Status(5, is_idle=True)])
async def test_time_of_no_channel_ends_the_connection(
    service: Streaming, peer: Peer, frame: Frame
) -> None:
    """Only an open channel has a time."""
    await peer.send(frame)

    assert await refused(service, peer) == "unknown_channel: channel 5 is not open"


# Peers that fail


async def test_lost_peer_leaves_nothing(service: Streaming, peer: Peer) -> None:
    """When a client is gone its lookups are left, its queries end, its credit is back."""
    store = service.stores["customers"]
    store.hold()
    await peer.ask(1, 7)
    await peer.send(open_frame(2, "orders"))
    await store.wait_for_fetches(1)

    peer.vanish()

    await service.wait_until_empty()
    await until(lambda: store.cancelled_total == 1)


async def test_deaf_peer_may_be_lost() -> None:
    """A peer that vanishes while its answers wait to be taken is just as gone."""
    async with streaming() as service:
        deaf = await service.peer("blobs")
        for sequence in range(1, 31):
            await deaf.ask(sequence, 0)
        await service.stores["blobs"].wait_for_fetches(1)

        deaf.vanish()

        await service.wait_until_empty()


async def test_lost_peer_leaves_lookups_to_others(service: Streaming, peer: Peer) -> None:
    """A lookup that another peer shares goes on for that one."""
    store = service.stores["customers"]
    store.hold()
    other = await service.peer()
    await peer.ask(1, 7)
    asked = await other.ask(1, 7)
    await until(lambda: sum(c.in_flight_records for c in service.handler.statistics()) == 2)
    await peer.socket.close()
    await until(lambda: len(service.handler.statistics()) == 1)
    store.release()

    assert await other.answer(asked) == {0: "fetched Ada"}
    assert (len(store.batches), store.cancelled_total) == (1, 0)


async def test_peer_that_reads_nothing_stops_itself() -> None:
    """It blocks nobody else, and is given up when a send takes too long."""
    timeouts = Timeouts(send_s=0.2, close_s=0.1)
    async with streaming(Setting(timeouts=timeouts)) as service:
        deaf, other = await service.peer("blobs"), await service.peer()
        for sequence in range(1, 31):
            await deaf.ask(sequence, 0)  # nobody takes the answers
        await until(lambda: len(service.stores["blobs"].batches) == 1)

        assert await other.answer(await other.ask(1, 7)) == {0: "fetched Ada"}
        await until(lambda: len(service.handler.statistics()) == 1)
        assert await other.answer(await other.ask(2, 7)) == {0: "hit Ada"}


async def test_peer_that_reads_again_is_told() -> None:
    """When it wakes up in time it learns why the connection ends, behind what it had missed."""
    async with streaming(Setting(timeouts=Timeouts(send_s=0.1))) as service:
        deaf = await service.peer("blobs")
        for sequence in range(1, 31):
            await deaf.ask(sequence, 0)
        await service.wait_until_empty()

        while (message := await deaf.socket.receive()).type is aiohttp.WSMsgType.BINARY:
            pass  # what had already left
    assert (message.data, message.extra) == (
        aiohttp.WSCloseCode.TRY_AGAIN_LATER,
        "the peer reads nothing",
    )


async def test_peer_that_reads_nothing_gets_no_credit() -> None:
    """Answers that it does not take are not forgotten: it may not go on asking."""
    async with streaming(Setting(credit_bytes=8 * 64 * 2 * 500)) as service:  # for 500 records
        deaf = await service.peer("blobs")
        for sequence in range(1, 30):
            await deaf.ask(sequence, *([0] * 20))
        (channel,) = service.handler.statistics()

        await until(lambda: not service.handler.statistics())
    assert channel.connection == 1


class DefectiveDimension(Dimension):
    """Has a defect where lookups come in."""

    def submit(self, *_: object, **__: object) -> Submitted:
        """Fail as nothing may."""
        raise ZeroDivisionError


async def test_defect_ends_its_connection_only() -> None:
    """A defect of the service is told with code 1011; the process lives."""
    async with streaming(Setting(make=DefectiveDimension)) as service:
        peer = await service.peer()
        await peer.ask(1, 7)

        assert await peer.closed() == (
            aiohttp.WSCloseCode.INTERNAL_ERROR,
            "a defect of the service",
        )
        await service.wait_until_empty()
        await service.peer()

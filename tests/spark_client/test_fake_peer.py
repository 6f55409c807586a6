"""The service's side of a connection in memory: it holds the client to the protocol."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.fake_sidecar import AGENT, Behaviour, FakeDimension, FakePeer, Memory

KEY = pa.schema({"id": pa.int64()})
TABLE = pa.table({"id": [1, 2], "name": ["one", "two"]})


def peer(behaviour: Behaviour | None = None, memory: Memory | None = None) -> FakePeer:
    """A peer with one dimension."""
    dimensions = {"d": FakeDimension(TABLE, ("id",))}
    return FakePeer(dimensions, behaviour or Behaviour(), memory or Memory())


def said(peer: FakePeer, frame: Frame) -> list[Frame]:
    """What it answers at once."""
    return [decode_frame(message) for message in peer.on_message(encode_frame(frame))]


def more(peer: FakePeer) -> list[Frame]:
    """What it says later."""
    return [decode_frame(message) for message in peer.more()]


def opening(number: int = 1, *, dimension: str = "d", key: pa.Schema = KEY) -> frames.Open:
    """An OPEN frame."""
    return frames.Open(number, dimension, None, "a test", key)


def lookup(sequence: int, *ids: int) -> frames.Lookup:
    """A LOOKUP frame."""
    payload = encode_batch(pa.record_batch([pa.array(ids, pa.int64())], KEY))
    return frames.Lookup(1, sequence, 1000, 0, payload)


def test_hello_is_welcomed() -> None:
    """The version is the one that it was told to speak."""
    assert said(peer(Behaviour(version=7)), frames.Hello((1,), "x")) == [frames.Welcome(7, AGENT)]


def test_channel_is_opened_with_credit() -> None:
    """A known dimension and a key of the right length open a channel."""
    opened = said(peer(Behaviour(credit_records=5, credit_bytes=99)), opening())

    assert opened == [frames.Opened(1, 5, 99, pa.schema({"name": pa.utf8()}), ("id",))]


def test_impossible_channels_are_refused() -> None:
    """An unknown dimension, an unknown column, a key of another length."""
    long_key = pa.schema({"a": pa.int8(), "b": pa.int8()})
    tries = [
        opening(dimension="x"),
        frames.Open(1, "d", ("nope",), "a test", KEY),
        opening(key=long_key),
    ]

    refusals = [said(peer(), attempt)[0] for attempt in tries]

    assert [refusal.code for refusal in refusals if isinstance(refusal, frames.Failure)] == [
        ErrorCode.UNKNOWN_DIMENSION,
        ErrorCode.UNKNOWN_COLUMN,
        ErrorCode.KEY_TYPE,
    ]


def test_results_come_before_their_credit() -> None:
    """In parts if so told; the last one says so, and the credit comes back behind it."""
    speaking = peer(Behaviour(part_size=1))
    said(speaking, opening())
    asked = lookup(1, 2, 1)

    assert said(speaking, asked) == []
    first, last, credit = more(speaking)

    assert isinstance(first, frames.Result)
    assert isinstance(last, frames.Result)
    assert (first.is_last, last.is_last) == (False, True)
    assert credit == frames.Credit(1, 2, len(asked.payload))
    assert more(speaking) == []


def test_seed_shuffles_the_lookups() -> None:
    """With a seed one part is said at a time, of any lookup that waits."""
    order = []
    speaking = peer(Behaviour(part_size=1, seed=5), Memory())
    speaking._memory.chance.seed(5)
    said(speaking, opening())
    said(speaking, lookup(1, 1, 2))
    said(speaking, lookup(2, 1, 2))
    while parts := more(speaking):
        order += [part.sequence for part in parts if isinstance(part, frames.Result)]

    assert sorted(order) == [1, 1, 2, 2]
    assert np.diff(order).any()


def test_violations_are_errors() -> None:
    """A gap, more than the credit, or a channel that is not open close the connection."""
    speaking = peer(Behaviour(credit_records=1))
    with pytest.raises(ProtocolViolation, match="not open"):
        said(speaking, lookup(1, 1))
    said(speaking, opening())
    with pytest.raises(ProtocolViolation, match="credit"):
        said(speaking, lookup(1, 1, 2))
    with pytest.raises(ProtocolViolation, match="seq_gap"):
        said(peer_with_channel(), lookup(5, 1))
    with pytest.raises(ProtocolViolation, match="client's frame"):
        said(speaking, frames.Goaway("x"))


def peer_with_channel() -> FakePeer:
    """A peer whose channel 1 stands."""
    speaking = peer()
    said(speaking, opening())
    return speaking


def test_cancelled_lookup_gives_credit_back() -> None:
    """A lookup that is cancelled is not answered any more; again is a no-op."""
    speaking = peer_with_channel()
    asked = lookup(1, 1)
    said(speaking, asked)

    assert said(speaking, frames.Cancel(1, 1)) == [frames.Credit(1, 1, len(asked.payload))]
    assert said(speaking, frames.Cancel(1, 1)) == []
    assert more(speaking) == []


def test_refusals_come_first() -> None:
    """Whoever wants to see a refusal puts it into the memory, also for several connections."""
    memory = Memory(refusals=[frames.Failure(0, ErrorCode.OVERLOADED, "full", is_retryable=True)])

    assert said(peer(memory=memory), opening(3)) == [
        frames.Failure(3, ErrorCode.OVERLOADED, "full", is_retryable=True)
    ]
    assert isinstance(said(peer(memory=memory), opening(3))[0], frames.Opened)


def test_silence_answers_nothing() -> None:
    """A silent peer takes lookups and control frames, and says no more."""
    speaking = peer(Behaviour(is_silent=True))
    said(speaking, opening())

    assert said(speaking, lookup(1, 1)) == []
    assert said(speaking, frames.Watermark(1, 5)) == []
    assert more(speaking) == []
    assert said(speaking, frames.Close(1)) == [frames.Closed(1)]

"""Contract of the sidecar in memory: it answers as the service does, and refuses violations."""

import pyarrow as pa
import pytest

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.fake_sidecar import Behaviour, FakeDimension, FakePeer, Memory
from tests.spark_client.builders import KEY

TABLE = pa.table({"id": [1, 2], "name": ["one", "two"]})
OPEN = frames.Open(1, "d", None, "a test", KEY)


def peer(behaviour: Behaviour | None = None) -> FakePeer:
    """A peer with one dimension."""
    return FakePeer({"d": FakeDimension(TABLE, ("id",))}, behaviour or Behaviour(), Memory())


def said(peer: FakePeer, *sent: Frame) -> list[Frame]:
    """The immediate replies."""
    messages = [message for frame in sent for message in peer.on_message(encode_frame(frame))]
    return [decode_frame(message) for message in messages]


def more(peer: FakePeer) -> list[Frame]:
    """The later messages."""
    return [decode_frame(message) for message in peer.more()]


def lookup(sequence: int, *ids: int) -> frames.Lookup:
    """A LOOKUP frame."""
    payload = encode_batch(pa.record_batch([pa.array(ids, pa.int64())], KEY))
    return frames.Lookup(1, sequence, 1000, 0, payload)


@pytest.mark.parametrize(
    ("opening", "code"),
    [
        (frames.Open(1, "x", None, "", KEY), ErrorCode.UNKNOWN_DIMENSION),
        (frames.Open(1, "d", ("nope",), "", KEY), ErrorCode.UNKNOWN_COLUMN),
        (frames.Open(1, "d", None, "", KEY, is_as_of=True), ErrorCode.BAD_REQUEST),
        (
            frames.Open(1, "d", None, "", pa.schema({"a": pa.int8(), "b": pa.int8()})),
            ErrorCode.KEY_TYPE,
        ),
    ],
)
def test_impossible_channels_are_refused(opening: frames.Open, code: ErrorCode) -> None:
    """An unknown dimension or column, versions that it lacks, a key of another length."""
    (refusal,) = said(peer(), opening)

    assert isinstance(refusal, frames.Failure)
    assert refusal.code == code


def test_results_precede_their_credit() -> None:
    """Parts come in order, the last one is marked, and its credit follows."""
    speaking, sent = peer(Behaviour(part_size=1)), lookup(1, 2, 1)

    assert said(speaking, OPEN, sent)[1:] == []
    first, last, credit = more(speaking)

    assert isinstance(first, frames.Result)
    assert isinstance(last, frames.Result)
    assert (first.is_last, last.is_last) == (False, True)
    assert credit == frames.Credit(1, 2, len(sent.payload))
    assert more(speaking) == []


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        ([lookup(1, 1)], "not open"),
        ([OPEN, lookup(1, 1, 2)], "credit"),
        ([OPEN, lookup(5, 1)], "seq_gap"),
        ([frames.Goaway("x")], "client's frame"),
    ],
)
def test_violations_are_errors(sent: list[Frame], text: str) -> None:
    """A closed channel, more than the credit, a gap, or a frame of the service is refused."""
    with pytest.raises(ProtocolViolation, match=text):
        said(peer(Behaviour(credit_records=1)), *sent)


def test_cancelled_lookup_returns_its_credit() -> None:
    """A cancelled lookup is not answered; cancelling again is a no-op."""
    speaking, sent = peer(), lookup(1, 1)
    said(speaking, OPEN, sent)

    assert said(speaking, frames.Cancel(1, 1)) == [frames.Credit(1, 1, len(sent.payload))]
    assert said(speaking, frames.Cancel(1, 1)) == []
    assert more(speaking) == []

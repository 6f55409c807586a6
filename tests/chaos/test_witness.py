"""The witness of the chaos tests sees what it is there for: a blind one would prove nothing."""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.transport.interface import Transport
from tests.chaos.records import Records
from tests.chaos.wire_order import WireOrder
from tests.chaos.witness import KEY, Witness

RECORDS = Records([5, 6, 5, 7], [0, 1_000, 2_000, 4_000])  # cut behind the third
FIRST_MS = RECORDS.watermarks_ms()[0]


class Line:
    """A transport that takes everything, and brings what it is told to."""

    def __init__(self, *coming: Frame) -> None:
        self.coming = [encode_frame(frame) for frame in coming]

    def send(self, message: bytes) -> None:
        """See `Transport`."""

    def receive(self, timeout_s: float) -> Sequence[bytes]:  # noqa: ARG002 -- it never waits
        """See `Transport`."""
        return self.coming

    def wake(self) -> None:
        """See `Transport`."""

    def close(self) -> None:
        """See `Transport`."""

    def disown(self) -> None:
        """See `Transport`."""


def lookup(sequence: int, *keys: int) -> frames.Lookup:
    """A lookup on channel 1."""
    payload = encode_batch(pa.record_batch([pa.array(keys, pa.int64())], schema=KEY))
    return frames.Lookup(1, sequence, 60_000, 0, payload)


def seen(*sent: Frame, line: Line) -> tuple[Witness, Transport]:
    """A witness after these frames were sent on a channel that was opened."""
    witness = Witness({"a": WireOrder.of(RECORDS)})
    transport = witness.watched(line)
    for frame in (frames.Open(1, "cached", None, "a", KEY), *sent):
        transport.send(encode_frame(frame))
    return witness, transport


def test_lookup_behind_its_watermark_is_late() -> None:
    """A key of one record, sent behind the watermark that its record stands before, is counted."""
    mark = frames.Watermark(1, FIRST_MS)

    right, _ = seen(lookup(1, 5, 6), mark, lookup(2, 7, 5), line=Line())
    wrong, _ = seen(mark, lookup(1, 5, 6), lookup(2, 7), line=Line())

    assert (right.late_lookups, wrong.late_lookups) == (0, 1)  # of 5 nobody can tell


def test_new_channel_has_no_watermark_yet() -> None:
    """Opened anew, a channel is sent what was unanswered, and is not late by that."""
    again = frames.Open(1, "cached", None, "a", KEY)

    witness, _ = seen(frames.Watermark(1, FIRST_MS), again, lookup(1, 6), line=Line())

    assert (witness.late_lookups, witness.unanswered) == (0, 1)


def test_loss_counts_with_lookups_unanswered_only() -> None:
    """A connection that ends is a loss as long as a last answer is missing."""
    result = frames.Result(1, 1, is_last=True, has_rows=False, payload=b"")
    lost, cut = seen(lookup(1, 5), line=Line())
    idle, quiet = seen(lookup(1, 5), line=Line(result))
    quiet.receive(0.0)

    cut.close()
    quiet.close()

    assert (lost.cut_off, idle.cut_off) == (1, 0)
    assert (lost.unanswered, idle.unanswered) == (0, 0)


def test_goaway_and_cancel_are_told_apart() -> None:
    """GOAWAY strikes while something is unanswered; what is cancelled was given up, once."""
    cancel = frames.Cancel(1, 1)
    busy, transport = seen(lookup(1, 5), line=Line(frames.Goaway("drain")))
    calm, other = seen(lookup(1, 5), cancel, cancel, line=Line(frames.Goaway("drain")))

    transport.receive(0.0)
    other.receive(0.0)

    assert (busy.sent_away, busy.given_up) == (1, 0)
    assert (calm.sent_away, calm.given_up) == (0, 1)

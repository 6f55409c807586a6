"""The checker and the witness of the chaos tests find each kind of fault."""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.protocol import frames
from lookup_core.protocol.arrow_payload import encode_batch
from lookup_core.protocol.frame_codec import encode_frame
from lookup_core.protocol.frames import Frame
from spark_client.lookup_settings import OutputMode
from tests.chaos.checker import Emitted, Tally, tally
from tests.chaos.records import Records, value_of
from tests.chaos.witness import KEY, WireOrder, Witness

# Cut after the third record; records 0 and 2 have the same key.
RECORDS = Records([5, 6, 5, 7], [0, 1_000, 2_000, 4_000])


class Line:
    """A transport that accepts all frames and receives one."""

    def __init__(self, coming: Frame) -> None:
        self.coming = [encode_frame(coming)]

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


def test_checker_counts_each_fault() -> None:
    """Lost, doubled, wrong, late and misplaced records are counted by the mode."""
    right: list[Emitted] = [(n, value_of(key), "hit") for n, key in enumerate(RECORDS.keys)]
    wrong: Emitted = (1, -1, "hit")
    late: Emitted = (1, None, "timeout")
    swapped = [right[2], right[1], right[0], right[3]]

    assert all(tally(RECORDS, right, mode) == Tally() for mode in OutputMode)
    found = tally(RECORDS, [right[0], wrong, late, right[3], right[3]], OutputMode.UNORDERED)
    assert found == Tally(lost=1, duplicated=2, wrong=1, timed_out=1)
    orders = [tally(RECORDS, swapped, mode).out_of_order for mode in OutputMode]
    assert orders == [2, 0, 1]
    crossed = tally(RECORDS, [*right[:2], right[3], right[2]], OutputMode.UNORDERED)
    assert crossed == Tally(watermark_violations=1)


def test_witness_counts_late_lookups_and_losses() -> None:
    """A lookup after its watermark is late; a connection with unanswered lookups is a loss."""
    witness = Witness({"a": WireOrder.of(RECORDS)})
    transport = witness.watched(Line(frames.Goaway("drain")))
    payload = encode_batch(pa.record_batch([pa.array([5, 6], pa.int64())], schema=KEY))

    for frame in (
        frames.Open(1, "cached", None, "a", KEY),
        frames.Watermark(1, RECORDS.watermarks_ms()[0]),
        frames.Lookup(1, 1, 60_000, 0, payload),
        frames.Lookup(1, 2, 60_000, 0, payload),
        frames.Cancel(1, 2),
    ):
        transport.send(encode_frame(frame))
    transport.receive(0.0)
    unanswered = witness.unanswered
    transport.close()

    assert (witness.late_lookups, unanswered, witness.given_up) == (2, 1, 1)
    assert (witness.sent_away, witness.cut_off, witness.unanswered) == (1, 1, 0)

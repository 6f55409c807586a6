"""The sidecar in memory: connections come and go, its memory stays."""

import pyarrow as pa
import pytest

from lookup_core.errors import SidecarUnreachable
from lookup_core.protocol import frames
from lookup_core.protocol.frame_codec import decode_frame, encode_frame
from spark_client.fake_sidecar import FakeSidecar


def test_connections_share_one_memory() -> None:
    """What clients send is remembered over all connections."""
    sidecar = FakeSidecar({})
    first, second = sidecar.connect(), sidecar.connect()

    first.send(encode_frame(frames.Open(1, "x", None, "a", _no_key())))
    second.send(encode_frame(frames.Open(2, "x", None, "b", _no_key())))

    assert [
        frame.channel for frame in sidecar.memory.received if isinstance(frame, frames.Open)
    ] == [
        1,
        2,
    ]
    assert sidecar.connection_count == 2


def test_crash_loses_all_connections() -> None:
    """Everyone who listens learns of it; new connections are possible unless it is down."""
    sidecar = FakeSidecar({})
    lost = sidecar.connect()

    sidecar.crash()

    with pytest.raises(SidecarUnreachable, match="crashed"):
        lost.receive(1.0)
    sidecar.connect()
    sidecar.is_down = True
    with pytest.raises(SidecarUnreachable, match="down"):
        sidecar.connect()


def test_frames_are_told_to_everyone() -> None:
    """A frame that nobody asked for reaches each connection."""
    sidecar = FakeSidecar({})
    transports = [sidecar.connect(), sidecar.connect()]

    sidecar.tell(frames.Goaway("drain"))

    heard = [decode_frame(message) for each in transports for message in each.receive(1.0)]
    assert heard == [frames.Goaway("drain")] * 2


def _no_key() -> pa.Schema:
    return pa.schema([])

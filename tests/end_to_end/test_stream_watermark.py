"""The event time of streams, from the client's channels to the metrics of a real sidecar."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from lookup_core.protocol.client_channel import ChannelRequest
from spark_client.transport.channel_session import IDLE_AFTER_S, ChannelSession
from spark_client.transport.connection import Connection, Timing
from spark_client.transport.endpoint import endpoint_of
from spark_client.transport.handshake import handshake
from tests.end_to_end.parquet_sidecar import url_of
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until

GAUGE, LABELS = "sidelook_stream_watermark_seconds", {"dimension": "places"}
KEY = pa.schema({"text": pa.utf8(), "number": pa.int64()})


@dataclass(slots=True)
class Streams:
    """Channels to the dimension `places`, with a clock that is moved; remembers each scrape."""

    sidecar: SidecarProcess
    now_s: float = 0.0
    seen: list[float] = field(default_factory=list)

    def connection(self) -> Connection:
        """A connection whose idleness goes by our clock."""
        url = url_of(self.sidecar)
        return Connection(
            lambda: handshake(endpoint_of(url), token=None, timeout_s=10.0),
            url=url,
            timing=Timing(clock=lambda: self.now_s),
        )

    def open(self, connection: Connection, origin: str) -> ChannelSession:
        """A channel."""
        return connection.open(ChannelRequest("places", (), origin, KEY))

    def wait_for(self, seconds: float) -> None:
        """Scrape until the gauge tells this."""
        until(lambda: self._scraped() == seconds)

    def listed(self) -> list[tuple[str, int | None, bool]]:
        """Origin, watermark and idleness as `/v1/channels` tells them."""
        channels = self.sidecar.get("/v1/channels").json()["channels"]
        return [
            (each["origin"], each["watermark_ms"], each["is_idle"])
            for each in channels
            if each["dimension"] == "places"
        ]

    def _scraped(self) -> float | None:
        families = text_string_to_metric_families(self.sidecar.health("/metrics").text)
        samples = [sample for family in families for sample in family.samples]
        own = [each.value for each in samples if (each.name, each.labels) == (GAUGE, LABELS)]
        self.seen += own
        return own[0] if own else None


@pytest.fixture
def streams(sidecar_process: SidecarProcess) -> Iterator[Streams]:
    """No channel is open, before and after; no scrape was less than the one before it."""
    streams = Streams(sidecar_process)
    yield streams
    until(lambda: not streams.listed())
    assert streams.seen == sorted(streams.seen)


def test_idle_channel_holds_nothing_back(streams: Streams) -> None:
    """The gauge is the least of both channels, goes on without the idle one, and never back."""
    connection = streams.connection()
    first, second = streams.open(connection, "first"), streams.open(connection, "second")
    first.mark(5_000)
    second.mark(4_000)
    streams.wait_for(4.0)

    with second.awaiting_input():
        streams.now_s += IDLE_AFTER_S
        streams.wait_for(5.0)
        assert streams.listed() == [("first", 5_000, False), ("second", 4_000, True)]
    second.mark(4_500)  # active, and still behind: it holds nobody back
    first.mark(6_000)

    streams.wait_for(6.0)
    assert streams.listed() == [("first", 6_000, False), ("second", 4_500, False)]
    first.close()
    second.close()


def test_ended_channels_leave_the_last_figure(streams: Streams) -> None:
    """The end of one input lets the other go on; when both have closed, the gauge stays."""
    connection = streams.connection()
    first, second = streams.open(connection, "first"), streams.open(connection, "second")
    first.mark(7_000)
    second.mark(8_000)
    streams.wait_for(7.0)

    first.mark(MAX_WATERMARK_MS)
    streams.wait_for(8.0)
    first.close()
    second.close()

    until(lambda: not streams.listed())
    streams.wait_for(8.0)

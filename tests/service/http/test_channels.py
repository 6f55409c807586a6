"""Open channels are told as the streams count them."""

from dataclasses import asdict, replace

from lookup_core.protocol.server_channel import ChannelStatistics
from tests.service.http.serving import Served, Setting, served

CHANNEL = ChannelStatistics(
    connection=1,
    channel=2,
    dimension="customers",
    origin="task 7",
    exclusive_records=64,
    floating_records=36,
    credit_records=90,
    backlog_records=20,
    in_flight_records=3,
    watermark_ms=None,
    is_idle=True,
)


async def test_channels_are_listed() -> None:
    """Every open channel is told with all of its figures."""
    setting = Setting(change_parts=lambda parts: replace(parts, channels=lambda: [CHANNEL]))

    async with served(setting) as service, service.unix.get("/v1/channels") as response:
        assert await response.json() == {"channels": [asdict(CHANNEL)]}


async def test_no_channels_are_an_empty_list(service: Served) -> None:
    """Without streams the list is empty, not absent."""
    async with service.unix.get("/v1/channels") as response:
        assert await response.json() == {"channels": []}

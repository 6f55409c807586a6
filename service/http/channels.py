"""`GET /v1/channels`: the open streams with credit, backlog, flight and watermark.

A snapshot; it holds no channel up.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import orjson
from aiohttp import web

from lookup_core.protocol.server_channel import ChannelStatistics
from service.http.media_type import MediaType


@dataclass(frozen=True, slots=True)
class Channels:
    """Handles the question who is connected."""

    channels: Callable[[], Sequence[ChannelStatistics]]

    async def get_all(self, _request: web.Request) -> web.Response:
        """All channels, as they are now."""
        channels = described_channels(self.channels())
        return web.Response(
            body=orjson.dumps({"channels": channels}), content_type=MediaType.JSON.value
        )


def described_channels(channels: Sequence[ChannelStatistics]) -> list[dict[str, Any]]:
    """Channels as JSON values."""
    return [asdict(each) for each in channels]

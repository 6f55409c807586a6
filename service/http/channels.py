"""`GET /v1/channels`: the open streams with credit, backlog, flight and watermark.

A snapshot; it holds no channel up.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

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
        channels = [asdict(each) for each in self.channels()]
        return web.Response(
            body=orjson.dumps({"channels": channels}), content_type=MediaType.JSON.value
        )

"""`GET /v1/status`: all that the status page shows, in one answer and of one moment.

Counts nothing: each part is what the route of its own tells.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from lookup_core.protocol.server_channel import ChannelStatistics
from service.http.catalogue import Catalogue
from service.http.channels import described_channels
from service.http.dimensions import described_dimension
from service.http.media_type import MediaType
from service.http.readiness import Readiness
from service.http.vitals import Vitals


@dataclass(frozen=True, slots=True)
class Status:
    """Handles the question how everything is doing."""

    catalogue: Catalogue
    channels: Callable[[], Sequence[ChannelStatistics]]
    readiness: Readiness
    vitals: Vitals
    version: str

    async def get(self, _request: web.Request) -> web.Response:
        """The service, its dimensions by name, and its channels."""
        dimensions = sorted(self.catalogue.dimensions.items())
        told = {
            "version": self.version,
            **self.vitals.told(),
            "is_draining": self.readiness.is_draining,
            "not_ready": self._not_ready(),
            "dimensions": [described_dimension(dimension) for _, dimension in dimensions],
            "channels": described_channels(self.channels()),
        }
        return web.Response(body=orjson.dumps(told), content_type=MediaType.JSON.value)

    def _not_ready(self) -> dict[str, Any]:
        undescribed = self.readiness.undescribed()
        unknown = {name: error.detail for name, error in undescribed.items()}
        return self.readiness.cold() | unknown

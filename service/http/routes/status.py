"""`GET /v1/status` and `GET /v1/channels`: what the status page shows."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from aiohttp import web

from lookup_core.protocol.server_channel import ChannelStatistics
from service.http.body import MediaType
from service.http.readiness import Readiness
from service.http.routes.dimensions import Catalogue, described_dimension


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """Made when the service starts; `limit_bytes` is the configured bound of what lookups take."""

    limit_bytes: int = 0
    resident_bytes: Callable[[], int] = lambda: 0  # 0: not known
    lag_s: Callable[[], float] = lambda: 0.0
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(default_factory=time.monotonic)

    def told(self) -> dict[str, Any]:
        """The figures now, as JSON values; null for what is not known."""
        return {
            "uptime_s": self.clock() - self.started_at,
            "memory": {
                "resident_bytes": self.resident_bytes() or None,
                "limit_bytes": self.limit_bytes,
            },
            "event_loop_lag_s": self.lag_s(),
        }


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


@dataclass(frozen=True, slots=True)
class Status:
    """Handles the question how everything is doing."""

    catalogue: Catalogue
    channels: Callable[[], Sequence[ChannelStatistics]]
    readiness: Readiness
    vitals: ProcessStatistics
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

"""`GET /v1/status` and `GET /v1/channels`: process, health, dimensions and channels."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from aiohttp import web

from lookup_core.protocol.server_channel import ChannelStatistics
from service.http.health import sidecar_health
from service.http.readiness import Readiness
from service.http.replies import models
from service.http.routes.dimensions import Catalogue, described_dimension


@dataclass(frozen=True, slots=True)
class ProcessStatistics:
    """Figures of the process since it started; `limit_bytes` is `limits.memory`."""

    limit_bytes: int = 0
    resident_bytes: Callable[[], int] = lambda: 0  # 0: not known
    lag_s: Callable[[], float] = lambda: 0.0
    clock: Callable[[], float] = time.monotonic
    started_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Status:
    """Handlers of the status and of the channel list."""

    catalogue: Catalogue
    channels: Callable[[], Sequence[ChannelStatistics]]
    readiness: Readiness
    process: ProcessStatistics
    version: str

    async def get(self, _request: web.Request) -> web.Response:
        """The process, its dimensions by name, and its channels, as they are now."""
        process, not_ready = self.process, self.readiness.not_ready()
        named = sorted(self.catalogue.dimensions.items())
        dimensions = [described_dimension(dimension, not_ready) for _, dimension in named]
        is_draining = self.readiness.is_draining
        return models.Status(
            version=self.version,
            uptime_s=process.clock() - process.started_at,
            memory=models.Memory(
                resident_bytes=process.resident_bytes() or None, limit_bytes=process.limit_bytes
            ),
            event_loop_lag_s=process.lag_s(),
            is_draining=is_draining,
            not_ready=not_ready,
            health=sidecar_health(dimensions, is_draining=is_draining),
            dimensions=dimensions,
            channels=self._channels(),
        ).response()

    async def get_channels(self, _request: web.Request) -> web.Response:
        """All channels, as they are now."""
        return models.Channels(channels=self._channels()).response()

    def _channels(self) -> list[models.Channel]:
        return [models.Channel.model_validate(each) for each in self.channels()]

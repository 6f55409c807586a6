"""What the running service is watched with: metrics, spans, its vitals.

Measures nothing itself, and starts nothing: who made an instrument also runs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from service.engine.dimension import Dimension
from service.engine.tracer import Tracer
from service.http.readiness import Readiness
from service.http.vitals import Vitals
from service.observability.certificate_collector import CertificateCollector
from service.observability.collector import Collector
from service.observability.event_loop_lag import EventLoopLag
from service.observability.exposition import Exposition
from service.observability.prometheus_observer import PrometheusObserver
from service.resources.memory_guard import MemoryGuard
from service.stream.handler import StreamHandler
from service.tls.certificate_rotation import CertificateRotation
from service.version import own_version


@dataclass(frozen=True, slots=True)
class Instruments:
    """One of each; no certificate where nothing is served by TLS."""

    observer: PrometheusObserver
    tracer: Tracer
    lag: EventLoopLag
    guard: MemoryGuard
    certificate: CertificateRotation | None

    def exposition(
        self, dimensions: Mapping[str, Dimension], readiness: Readiness, streams: StreamHandler
    ) -> Exposition:
        """All metrics of the process, for Prometheus."""
        collector = Collector(
            dimensions=lambda: {name: each.statistics() for name, each in dimensions.items()},
            refreshes=lambda: {n: each.refresh_statistics() for n, each in dimensions.items()},
            channels=streams.statistics,
            watermarks_ms=streams.watermarks_ms,
            undescribed=readiness.undescribed,
            uses_index=lambda: {name: each.uses_index for name, each in dimensions.items()},
            lag_s=lambda: self.lag.lag_s,
            memory=self.guard.statistics,
            version=own_version(),
        )
        return Exposition([self.observer, collector, CertificateCollector(self.certificate)])

    def vitals(self, limit_bytes: int) -> Vitals:
        """For the status page; memory as the guard has seen it last."""
        return Vitals(
            limit_bytes,
            resident_bytes=lambda: self.guard.statistics().resident_bytes,
            lag_s=lambda: self.lag.lag_s,
        )

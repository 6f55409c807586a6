"""Demand of all caches for memory, and the factor that fits them into their half of it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

from lookup_core.settings import CacheShare
from service.config.settings import Settings
from service.resources.memory_shares import MemoryShares, shared_file_bytes

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CacheDemand:
    """Sum of `cache.max_bytes` over all caches, and the factor that fits it into memory."""

    max_bytes: Mapping[str, int]  # {dimension: bound of its cache}
    written: Collection[str]  # dimensions whose `max_bytes` is no default
    scale: float  # 0 to 1
    shared_bytes: int  # all files of shared caches need them in a tmpfs; 0 without such files

    @classmethod
    def of(cls, settings: Settings) -> "CacheDemand":
        """Return the sum for a configuration."""
        configs = settings.dimensions.items()
        caches = {name: each.cache for name, each in configs if each.cache.wanted_bytes}
        max_bytes = {name: each.wanted_bytes for name, each in caches.items()}
        scale = MemoryShares(settings.limits.memory_bytes).cache_scale(sum(max_bytes.values()))
        shared = [each.wanted_bytes for each in caches.values() if each.share is CacheShare.AUTO]
        written = [name for name, each in caches.items() if "max_bytes" in each.model_fields_set]
        return cls(max_bytes, written, scale, shared_file_bytes(int(scale * sum(shared))))

    @property
    def wanted_bytes(self) -> int:
        """The sum of all bounds."""
        return sum(self.max_bytes.values())

    def log_reductions(self) -> None:
        """Log each reduction of a bound that is configured."""
        for dimension in self.written if self.scale < 1.0 else ():
            log.info(
                "dimension.cache_scaled_down",
                dimension=dimension,
                max_bytes=self.max_bytes[dimension],
                gets_bytes=int(self.max_bytes[dimension] * self.scale),
                remedy="raise limits.memory, or lower cache.max_bytes",
            )

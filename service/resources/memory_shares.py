"""Shares of `limits.memory` for caches, credit, answers and request bodies."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Shares of `total_bytes`; their sum exceeds it, because they are rarely all in full use."""

    total_bytes: int

    @property
    def credit_bytes(self) -> int:
        """For waiting lookups of streams: a quarter."""
        return self.total_bytes // 4

    @property
    def stream_answer_bytes(self) -> int:
        """For unsent answers of streams: an eighth; allocators double it for large rows."""
        return self.total_bytes // 8

    @property
    def plain_answer_bytes(self) -> int:
        """For unsent answers of HTTP requests: an eighth."""
        return self.total_bytes // 8

    @property
    def body_bytes(self) -> int:
        """For bodies of HTTP requests: an eighth."""
        return self.total_bytes // 8

    def cache_scale(self, wanted_bytes: int) -> float:
        """The factor, 0 to 1, by which the caches fit into one half."""
        return min(1.0, self.total_bytes / 2 / max(wanted_bytes, 1))


def cache_scale(
    max_bytes: Mapping[str, int], shares: MemoryShares, *, written: Collection[str]
) -> float:
    """The factor for the `max_bytes` of all dimensions, 0 to 1.

    Logs each reduction of a bound that is configured; `written` has these dimensions.
    """
    scale = shares.cache_scale(sum(max_bytes.values()))
    if scale < 1.0:
        for dimension in written:
            log.info(
                "dimension.cache_scaled_down",
                dimension=dimension,
                max_bytes=max_bytes[dimension],
                gets_bytes=int(max_bytes[dimension] * scale),
                remedy="raise limits.memory, or lower cache.max_bytes",
            )
    return scale

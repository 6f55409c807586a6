"""How much of their bounds caches may hold that share the memory, told at the start if it is less.

Limits nothing; the share of all caches together is that of `memory_shares`.
"""

from collections.abc import Collection, Mapping

import structlog

from service.resources.memory_shares import MemoryShares

log = structlog.get_logger()


def cache_scale(
    max_bytes: Mapping[str, int], shares: MemoryShares, *, written: Collection[str]
) -> float:
    """The factor for the `max_bytes` of all dimensions, 0 to 1.

    Logs each that gets less than was written; less than a default is no news.
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

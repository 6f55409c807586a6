"""How much of their bounds caches may hold that share the memory, told at the start if it is less.

Limits nothing; the share of all caches together is that of `memory_shares`.
"""

from collections.abc import Mapping

import structlog

from service.resources.memory_shares import MemoryShares

log = structlog.get_logger()


def cache_scale(max_bytes: Mapping[str, int], shares: MemoryShares) -> float:
    """The factor for the `max_bytes` of all dimensions, 0 to 1; logs each that gets less."""
    scale = shares.cache_scale(sum(max_bytes.values()))
    if scale < 1.0:
        for dimension, wanted_bytes in max_bytes.items():
            log.info(
                "dimension.cache_scaled_down",
                dimension=dimension,
                max_bytes=wanted_bytes,
                gets_bytes=int(wanted_bytes * scale),
                remedy="raise limits.memory, or lower cache.max_bytes",
            )
    return scale

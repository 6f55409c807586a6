"""Division of `limits.memory` among caches, answers and requests."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import structlog

_CACHES = 2  # a half
_CREDIT = 4
_STREAM_ANSWERS = 8  # allocators hold about as much again for rows of many kilobytes
_PLAIN_ANSWERS = 8
_BODIES = 8


@dataclass(frozen=True, slots=True)
class MemoryShares:
    """Of so many bytes, which nobody holds in full at all times: together they are more."""

    total_bytes: int

    @property
    def credit_bytes(self) -> int:
        """What waiting lookups of streams may take."""
        return self.total_bytes // _CREDIT

    @property
    def stream_answer_bytes(self) -> int:
        """What their answers may take, until they are sent."""
        return self.total_bytes // _STREAM_ANSWERS

    @property
    def plain_answer_bytes(self) -> int:
        """The same for requests that are no streams."""
        return self.total_bytes // _PLAIN_ANSWERS

    @property
    def body_bytes(self) -> int:
        """What their bodies may take while they are read."""
        return self.total_bytes // _BODIES

    def cache_scale(self, wanted_bytes: int) -> float:
        """How much of their bounds caches may hold that together want so much, 0 to 1."""
        return min(1.0, self.total_bytes / _CACHES / max(wanted_bytes, 1))


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

"""Event-time alignment: which splits wait for the slowest, after Flink's FLIP-182 and FLIP-217.

Not the waiting itself: readers are told by the engine.
"""

from collections.abc import Mapping

from lookup_core.watermark_valve import NO_WATERMARK_MS


def splits_ahead(watermarks_ms: Mapping[str, int], max_drift_ms: int) -> frozenset[str]:
    """The active splits whose watermark is more than the drift beyond the least of them.

    Never the slowest, so that nothing stalls. A split that has told no watermark yet neither waits
    nor is waited for.
    """
    told_ms = {each: at_ms for each, at_ms in watermarks_ms.items() if at_ms != NO_WATERMARK_MS}
    if not told_ms:
        return frozenset()
    limit_ms = min(told_ms.values()) + max_drift_ms
    return frozenset(split_id for split_id, at_ms in told_ms.items() if at_ms > limit_ms)

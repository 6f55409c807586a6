"""What is shown of a split."""

from lookup_core.sources.splits import SplitProgress, SplitState
from lookup_core.watermark_valve import NO_WATERMARK_MS


def test_fresh_split_claims_nothing() -> None:
    """Of a split that nobody has read, nothing is known but its state."""
    fresh = SplitProgress("a", SplitState.UNASSIGNED)

    assert (fresh.position, fresh.total, fresh.last_error) == (None, None, None)
    assert (fresh.is_caught_up, fresh.is_idle, fresh.is_paused) == (False, False, False)
    assert (fresh.watermark_ms, fresh.failures_total) == (NO_WATERMARK_MS, 0)

"""How large the segments of a queue may become."""

from lookup_core.cache.segments import SegmentQueue


def test_small_queue_has_segments_of_its_bound() -> None:
    """As long as it holds little, the bound that its store was given counts."""
    assert SegmentQueue(1_000, {}, bytes=500, rows=10).segment_bytes == 1_000


def test_large_queue_has_a_handful_of_segments() -> None:
    """What it holds, with what rows take elsewhere, is in about six segments."""
    assert SegmentQueue(1_000, {}, bytes=8_000, rows=100).segment_bytes == 2_000


def test_no_segment_outgrows_its_offsets() -> None:
    """However much a queue holds, a segment's offsets fit into 32 bits."""
    assert SegmentQueue(1_000, {}, bytes=2**40, rows=2**30).segment_bytes == 2**28

"""Event-time alignment: who waits for the slowest split."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.sources.split_watermarks import splits_ahead
from lookup_core.watermark_valve import NO_WATERMARK_MS


def test_splits_beyond_the_drift_wait() -> None:
    """Exactly the drift ahead is within; a millisecond more is not."""
    assert splits_ahead({"a": 100, "b": 150, "c": 151}, 50) == {"c"}


def test_caught_up_slowest_lets_others_go() -> None:
    """As soon as the slowest has come near enough, nobody waits any more."""
    assert splits_ahead({"a": 101, "b": 150, "c": 151}, 50) == frozenset()


def test_splits_without_watermark_do_not_count() -> None:
    """A split that has told none neither waits nor is waited for."""
    assert splits_ahead({"a": NO_WATERMARK_MS, "b": 100, "c": 200}, 50) == {"c"}
    assert splits_ahead({"a": NO_WATERMARK_MS}, 50) == frozenset()
    assert splits_ahead({}, 50) == frozenset()


@given(
    watermarks=st.dictionaries(st.text("abcdef", max_size=2), st.integers(-100, 100), min_size=1),
    drift_ms=st.integers(0, 50),
)
def test_slowest_never_waits(watermarks: dict[str, int], drift_ms: int) -> None:
    """Whatever the watermarks are, the slowest goes on, and all who are within the drift."""
    ahead = splits_ahead(watermarks, drift_ms)

    slowest_ms = min(watermarks.values())
    going_on = {each: at_ms for each, at_ms in watermarks.items() if each not in ahead}
    assert min(going_on.values()) == slowest_ms
    assert max(going_on.values()) <= slowest_ms + drift_ms
    assert all(watermarks[each] > slowest_ms + drift_ms for each in ahead)

"""What spreads tries."""

from service.engine.pause import jitter


def test_jitter_spreads() -> None:
    """Each number is another one, from 0 up to, but not including, 1."""
    drawn = [jitter() for _ in range(100)]

    assert len(set(drawn)) > 90
    assert all(0 <= each < 1 for each in drawn)

"""Figures for people."""

import pytest

from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from service.commands.tables import (
    shown_ago,
    shown_count,
    shown_share,
    shown_size,
    shown_span,
    shown_watermark,
)
from tests.shown_shares import SHOWN_SHARES


def test_counts_are_grouped() -> None:
    """Three digits stand together."""
    assert (shown_count(999), shown_count(1_234_567)) == ("999", "1,234,567")


@pytest.mark.parametrize(("part", "whole", "text"), [*SHOWN_SHARES, (0, 0, "")])
def test_only_the_whole_is_everything(part: int, whole: int, text: str) -> None:
    """Rounded half up; the little that is missing of all or none is never rounded away."""
    assert shown_share(part, whole) == text


@pytest.mark.parametrize(
    ("count_bytes", "text"),
    [
        (50 * 1024, "50.0 KiB"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (512 * 2**20, "512 MiB"),
        (2**55, "32768 TiB"),
    ],
)
def test_sizes_have_their_unit(count_bytes: int, text: str) -> None:
    """The largest that is filled."""
    assert shown_size(count_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0123, "12 ms"),
        (1.25, "1.2 s"),
        (60.0, "1 min 0 s"),
        (3_725.0, "1 h 2 min"),
        (200_000.0, "2 d 7 h"),
    ],
)
def test_spans_have_two_units(seconds: float, text: str) -> None:
    """Nobody counts the seconds of a day."""
    assert shown_span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.4, "now"), (1.6, "2 s ago"), (90.4, "1 min 30 s ago")]
)
def test_ages_are_in_whole_seconds(seconds: float, text: str) -> None:
    """What was just now has no figure."""
    assert shown_ago(seconds) == text


@pytest.mark.parametrize(
    ("watermark_ms", "text"),
    [
        (None, "none yet"),
        (MAX_WATERMARK_MS, "end of input"),
        (60_000, "1970-01-01 00:01:00Z, 40.0 s behind"),
        (105_000, "1970-01-01 00:01:45Z, 5.0 s ahead"),
        (2**62, "4,611,686,018,427,387,904 ms"),
    ],
)
def test_watermarks_are_held_against_the_clock(watermark_ms: int | None, text: str) -> None:
    """An event time, and how far it is from now; beyond any calendar it is a number."""
    assert shown_watermark(watermark_ms, 100.0) == text

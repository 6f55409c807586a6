"""Durations as people write them."""

import pytest

from spark_client.sidecar import duration_ms


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("10 seconds", 10_000),
        ("1 second", 1_000),
        ("500ms", 500),
        ("250 milliseconds", 250),
        ("1 hour 30 minutes", 5_400_000),
        ("1h30m", 5_400_000),
        (" 2 Days ", 172_800_000),
        ("interval 1 week", 604_800_000),
        ("0 seconds", 0),
    ],
)
def test_usual_spellings_are_understood(text: str, milliseconds: int) -> None:
    """Numbers and units, long and short, alone and added up."""
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "10", "seconds", "1.5 s", "-1 second", "1 month", "10 secs!"])
def test_anything_else_is_refused(text: str) -> None:
    """What is no sum of whole units is an error that says what would be."""
    with pytest.raises(ValueError, match="no duration"):
        duration_ms(text)

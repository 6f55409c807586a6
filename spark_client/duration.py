"""Durations as people write them ("10 seconds", "1 hour 30 minutes", "500ms"), in milliseconds.

Whole units only, and none whose length depends on the calendar.
"""

import re

_MS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "second", "seconds"), 1_000),
    **dict.fromkeys(("m", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("week", "weeks"), 7 * 86_400_000),
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)")


def duration_ms(text: str) -> int:
    """Milliseconds; raises ValueError saying what is understood."""
    position, total = 0, 0
    words = text.strip().lower().removeprefix("interval ")
    while part := _PART.match(words, position):
        if part[2] not in _MS:
            break
        total += int(part[1]) * _MS[part[2]]
        position = part.end()
    if not words or position != len(words):
        raise ValueError(
            f"{text!r} is no duration; write whole numbers of milliseconds, seconds, minutes,"
            " hours, days or weeks, as in '10 seconds'"
        )
    return total

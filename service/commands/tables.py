"""Terminal output: tables, escaped text, counts, sizes and times."""

import sys
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lookup_core.event_time.record_watermarks import MAX_WATERMARK_MS

_UNBOUND_WIDTH = 10_000  # characters; the output of a pipe is not cut
_NOW_S = 1.5
_MINUTE_S = 60
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60))  # (unit, seconds)


def shown(value: object) -> Text:
    """Return a value as text; markup and control characters are not interpreted."""
    text = value if isinstance(value, str) else "null" if value is None else str(value)
    return Text("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def print_table(table: Table) -> None:
    """Print a table on stdout."""
    console = Console(width=None if sys.stdout.isatty() else _UNBOUND_WIDTH)
    console.print(table)


def shown_share(part: int, whole: int) -> str:
    """Return a percentage; 100 and 0 are exact, other shares are rounded half up, 0 of 0 is ""."""
    if whole == 0:
        return ""
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    tenths = (2000 * part + whole) // (2 * whole)
    return f"{min(max(tenths, 1), 999) / 10:.1f} %"


def shown_size(count_bytes: int) -> str:
    """Return a size in the largest unit of which it has at least one."""
    step = min((max(count_bytes, 1).bit_length() - 1) // 10, len(_SIZES) - 1)
    amount = count_bytes / 1024**step
    return f"{amount:.{1 if step and amount < 100 else 0}f} {_SIZES[step]}"


def shown_span(seconds: float) -> str:
    """Return a duration in its two largest units, or in seconds or milliseconds."""
    for place, (unit, length) in enumerate(_SPANS):
        if seconds >= length:
            smaller, smaller_length = (*_SPANS, ("s", 1))[place + 1]
            return (
                f"{seconds // length:.0f} {unit} {seconds % length // smaller_length:.0f} {smaller}"
            )
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def shown_ago(seconds: float) -> str:
    """Return an age in whole seconds, minutes, hours or days."""
    if seconds < _NOW_S:
        return "now"
    whole = round(seconds)
    return f"{shown_span(whole) if whole >= _MINUTE_S else f'{whole} s'} ago"


def shown_watermark(watermark_ms: int | None, now_s: float) -> str:
    """Return an event time and its distance from the clock; `now_s` is in epoch seconds."""
    if watermark_ms is None:
        return "none yet"
    if watermark_ms >= MAX_WATERMARK_MS:
        return "end of input"
    try:
        moment = datetime.fromtimestamp(watermark_ms / 1000, UTC)
    except (OverflowError, ValueError):  # beyond Python's years
        return f"{watermark_ms:,} ms"
    behind_s = now_s - watermark_ms / 1000
    side = "behind" if behind_s >= 0 else "ahead"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z, {shown_span(abs(behind_s))} {side}"

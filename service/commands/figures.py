"""Figures as people read them: short, with their units.

Not for configurations: what is read back stands in `service.config.quantity`.
"""

from datetime import UTC, datetime

from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS

NOW_S = 1.5
MINUTE_S = 60
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS = (("d", 86_400), ("h", 3600), ("min", 60))  # (unit, seconds)


def shown_count(count: int) -> str:
    """A number of things, in groups of three digits."""
    return f"{count:,}"


def shown_share(part: int, whole: int) -> str:
    """In percent, rounded half up; 100 only for the whole, 0 only for none, nothing of nothing."""
    if whole == 0:
        return ""
    if part in {0, whole}:
        return "100 %" if part else "0 %"
    tenths = (2000 * part + whole) // (2 * whole)
    return f"{min(max(tenths, 1), 999) / 10:.1f} %"


def shown_size(count_bytes: int) -> str:
    """In the largest unit that it fills."""
    step = min((max(count_bytes, 1).bit_length() - 1) // 10, len(_SIZES) - 1)
    amount = count_bytes / 1024**step
    return f"{amount:.{1 if step and amount < 100 else 0}f} {_SIZES[step]}"


def shown_span(seconds: float) -> str:
    """In the two largest units; below a minute in seconds, below a second in milliseconds."""
    for place, (unit, length) in enumerate(_SPANS):
        if seconds >= length:
            smaller, smaller_length = (*_SPANS, ("s", 1))[place + 1]
            return (
                f"{seconds // length:.0f} {unit} {seconds % length // smaller_length:.0f} {smaller}"
            )
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def shown_ago(seconds: float) -> str:
    """How long ago, to the second."""
    if seconds < NOW_S:
        return "now"
    whole = round(seconds)
    return f"{shown_span(whole) if whole >= MINUTE_S else f'{whole} s'} ago"


def shown_watermark(watermark_ms: int | None, now_s: float) -> str:
    """The event time, and how far it is behind the clock."""
    if watermark_ms is None:
        return "none yet"
    if watermark_ms >= MAX_WATERMARK_MS:
        return "end of input"
    try:
        moment = datetime.fromtimestamp(watermark_ms / 1000, UTC)
    except (OverflowError, ValueError):  # beyond the years that this language knows
        return f"{shown_count(watermark_ms)} ms"
    behind_s = now_s - watermark_ms / 1000
    side = "behind" if behind_s >= 0 else "ahead"
    return f"{moment:%Y-%m-%d %H:%M:%S}Z, {shown_span(abs(behind_s))} {side}"

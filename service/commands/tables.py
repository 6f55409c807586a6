"""Tables and figures on the terminal."""

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lookup_core.errors import ErrorCode
from lookup_core.operator.event_time_watermarks import MAX_WATERMARK_MS
from service.commands.key_arguments import KeyField


def answer_table(keys: Sequence[str], answer: Mapping[str, Any]) -> Table:
    """One line for each key: its outcome, its row's age, and its row."""
    rows = [row or {} for row in answer["rows"]]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table("key", "outcome", "age")
    for column in columns:
        table.add_column(shown(column))
    answered = zip(keys, outcomes(answer), answer["ages_ms"], rows, strict=True)
    for key, outcome, age_ms, row in answered:
        age = shown_age(age_ms) if row else ""
        cells = [shown(row[name]) if name in row else Text() for name in columns]
        table.add_row(shown(key), shown(outcome), age, *cells)
    return table


def outcomes(answer: Mapping[str, Any]) -> list[str]:
    """The outcomes; where a key failed, with the code of its error."""
    errors = answer.get("errors", {})  # {position, as text: error}
    return [
        f"{outcome}: {errors[str(position)]['code']}" if str(position) in errors else outcome
        for position, outcome in enumerate(answer["outcomes"])
    ]


def failures(answer: Mapping[str, Any], key: Sequence[KeyField]) -> list[str]:
    """What the errors of single keys mean, each once; of those only that this version knows."""
    codes = {error["code"] for error in answer.get("errors", {}).values()}
    types = ", ".join(f"{field.name} {field.type}" for field in key)
    more = {ErrorCode.TYPE: f"; its key is {types}"}
    return [
        f"{code}: {code.meaning}{more.get(code, '')}" for code in ErrorCode if code.value in codes
    ]


def shown(value: object) -> Text:
    """The value as text that changes neither colours nor the terminal."""
    text = value if isinstance(value, str) else "null" if value is None else str(value)
    return Text("".join(char if char.isprintable() else ascii(char)[1:-1] for char in text))


def shown_age(age_ms: int) -> str:
    """An age in the unit that suits it."""
    return f"{age_ms} ms" if age_ms < 1000 else f"{age_ms / 1000:.1f} s"


UNBOUND_WIDTH = 10_000  # characters; nothing is cut where nobody looks at it directly


def print_table(table: Table) -> None:
    """Print the table on stdout."""
    console = Console(width=None if sys.stdout.isatty() else UNBOUND_WIDTH)
    console.print(table)


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

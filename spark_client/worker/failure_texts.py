"""Texts of failed lookups: the dimension, the cause, some keys, and the remedy."""

from collections.abc import Sequence

import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.operator.records_in_flight import Failed

MAX_SHOWN_KEYS = 3
_MAX_SHOWN_CHARACTERS = 60  # for each value of a key
_MAX_SHOWN_VALUES = 8  # for a composite key


def failure_detail(
    failed: Failed, dimension: str, *, keys: str, timeout_s: float, reasons: Sequence[str]
) -> str:
    """The text of LookupFailed; `keys` are those of `shown_keys`, `reasons` those of the codes."""
    lookups = "1 lookup" if failed.records == 1 else f"{failed.records} lookups"
    what = f'{lookups} of dimension "{dimension}"'
    if failed.outcome is not Outcome.TIMEOUT:
        reason = ", ".join(reasons) or "no reason given"
        return (
            f"{what} failed ({reason}){keys}; on_error is 'fail': on_error=\"null\" keeps these"
            ' records, with nulls, and "default" with the default row of the dimension, if it has'
            " one; with lookup_join, status_column adds the reason to each record"
        )
    if failed.has_expired:
        return (
            f"{what} had no answer within {timeout_s:g} s{keys};"
            ' raise timeout=, or set on_timeout="null" or "default"'
        )
    return (
        f"{what} timed out in the sidecar{keys}; if queries take longer than the dimension's"
        f" timeout, raise that in the configuration, and keep timeout= ({timeout_s:g} s) above it,"
        ' or set on_timeout="null" or "default"'
    )


def shown_keys(columns: Sequence[pa.Array]) -> str:
    """The first keys for people, behind a colon; `columns` has one more, if there are more."""
    values = [column.to_pylist() for column in columns]
    keys = list(map(_shown_key, zip(*values, strict=True)))
    more = ", …" if len(keys) > MAX_SHOWN_KEYS else ""
    return f": {'keys' if keys[1:] else 'key'} {', '.join(keys[:MAX_SHOWN_KEYS])}{more}"


def _shown_key(key: tuple[object, ...]) -> str:
    """One value, or all values of a composite key in parentheses."""
    texts = [repr(value) if isinstance(value, (str, bytes)) else str(value) for value in key]
    shortened = [
        text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}…"
        for text in texts[:_MAX_SHOWN_VALUES]
    ]
    if len(texts) == 1:
        return shortened[0]
    more = ", …" if len(texts) > _MAX_SHOWN_VALUES else ""
    return f"({', '.join(shortened)}{more})"

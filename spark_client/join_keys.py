"""Which columns of the records make up the key, and what the dimension calls them.

Names as the user wrote them; resolving them against a schema is `column_names`' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

On = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Pairs of a record's column and the name under which its value is sent."""

    columns: tuple[str, ...]  # of the records
    names: tuple[str, ...]  # of the key; the records' own names where the user gave no others


def join_keys(on: On) -> JoinKeys:
    """From `"column"`, `["a", "b"]` or `{"record's column": "key's column"}`; or ValueError."""
    match on:
        case str():
            pairs = {on: on}
        case Mapping():
            pairs = dict(on)
        case _:
            pairs = {name: name for name in on}
            if len(pairs) < len(on):
                raise ValueError(f"on names a column twice: {', '.join(on)}")
    if not pairs:
        raise ValueError("on must name at least one column")
    return JoinKeys(tuple(pairs), tuple(pairs.values()))

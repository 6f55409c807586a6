"""Which columns of the records make up the key, and what the dimension calls them.

Names as the user wrote them; resolving them against a schema is `column_names`' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lookup_core.keys.named_key import EXACT_NAMES

On = str | Sequence[str] | Mapping[str, str]


@dataclass(frozen=True, slots=True)
class JoinKeys:
    """Pairs of a record's column and the name under which its value is sent."""

    columns: tuple[str, ...]  # of the records
    names: tuple[str, ...]  # of the key; the records' own names where the user gave no others
    are_exact: bool = False  # whether the user gave them: then none may be wrong

    @property
    def metadata(self) -> dict[bytes, bytes] | None:
        """Of the key's schema on the wire."""
        return EXACT_NAMES if self.are_exact else None


def join_keys(on: On) -> JoinKeys:
    """From `"column"`, `["a", "b"]` or `{"record's column": "key's column"}`; or ValueError."""
    match on:
        case str():
            pairs = {on: on}
        case Mapping():
            pairs = dict(on)
        case Sequence():
            pairs = {name: name for name in on}
            if len(pairs) < len(on):
                raise ValueError(f"on names a column twice: {', '.join(on)}")
        case _:
            raise ValueError(f"on is a column's name, a list or a dict of names, not {on!r}")
    if not pairs:
        raise ValueError("on must name at least one column")
    return JoinKeys(tuple(pairs), tuple(pairs.values()), are_exact=isinstance(on, Mapping))

"""Names of columns as Spark resolves them: by case or not, and never two for one.

Finds positions and clashes; what the columns hold is not looked at.
"""

from collections import Counter
from collections.abc import Sequence

from lookup_core.errors import ErrorCode, InvalidRequest


class ColumnNames:
    """The columns of the records, in order."""

    def __init__(self, names: Sequence[str], *, is_case_sensitive: bool) -> None:
        """Raises InvalidRequest if two of the names are the same to Spark."""
        self._names = tuple(names)
        self._is_case_sensitive = is_case_sensitive
        self._check_distinct(self._names, "rename one of them before the lookup")

    def position(self, name: str) -> int:
        """Where a column stands; raises InvalidRequest naming what there is."""
        known = [self._folded(each) for each in self._names]
        if self._folded(name) not in known:
            raise InvalidRequest(
                ErrorCode.UNKNOWN_COLUMN,
                f"the records have no column {name!r}; they have {', '.join(self._names)}",
            )
        return known.index(self._folded(name))

    def check_with(self, added: Sequence[str]) -> None:
        """Raise InvalidRequest if one of the added names is there already, or added twice."""
        self._check_distinct((*self._names, *added), "choose another prefix or status_column")

    def _check_distinct(self, names: Sequence[str], remedy: str) -> None:
        counts = Counter(self._folded(name) for name in names)
        clashing = sorted({name for name in names if counts[self._folded(name)] > 1})
        if clashing:
            raise InvalidRequest(
                ErrorCode.BAD_REQUEST,
                f"columns of the same name: {', '.join(clashing)}; {remedy}",
            )

    def _folded(self, name: str) -> str:
        return name if self._is_case_sensitive else name.lower()

"""The row of one key as JSON at once, where it is cached and nothing has to be waited for.

Only a shorter way to what `engine_lookup` finds: all else is left to that.
"""

from service.engine.dimension import Dimension
from service.http.recent_rows import RecentRows, RowText
from service.http.row_writer import RowWriters


class RowTexts:
    """Finds and writes them, for all dimensions."""

    def __init__(self) -> None:
        self._writers = RowWriters()
        self._recent = RecentRows()

    def again(self, question: str) -> RowText | None:
        """What `find` found for this question, if it would find the same; else None."""
        return self._recent.find(question)

    def find(
        self, dimension: Dimension, value: object, *, question: str | None = None
    ) -> RowText | None:
        """The row of the key with this value; None, if a lookup has to find out.

        `question`, if any, is a text that always asks for this.
        """
        hit = dimension.hit(value)
        if hit is None:
            return None
        text = self._writers.of(dimension.name, dimension.schema).text(hit.row)
        if question is not None:
            self._recent.keep(question, dimension, hit, text=text)
        return RowText(text, hit.age_s)

"""JSON texts of recently requested rows, answered without decoding the request."""

from dataclasses import dataclass

from lookup_core.answer import MOST_AGE_MS
from lookup_core.cache.row_cache import Bookmark, Hit
from service.engine.dimension import Dimension
from service.http.replies.json_rows import RowWriters

MOST_ROWS = 1_024
MOST_BYTES = 4_096  # of a row, and of what asks for it: eight megabytes if all are so large


@dataclass(frozen=True, slots=True)
class RowText:
    """A row that was a hit."""

    text: bytes
    age_s: float

    @property
    def age_ms(self) -> int:
        """The age as it is told."""
        return min(int(self.age_s * 1000), MOST_AGE_MS)


@dataclass(frozen=True, slots=True)
class _Recent:
    dimension: Dimension
    bookmark: Bookmark
    text: bytes


class RecentRows:
    """So many of them; who came first goes first."""

    def __init__(self, most_rows: int = MOST_ROWS) -> None:
        self._rows: dict[str, _Recent] = {}
        self._most_rows = most_rows

    def find(self, question: str) -> RowText | None:
        """The row that is the answer, which counts as a hit; None if a dimension has to say."""
        recent = self._rows.get(question)
        if recent is None:
            return None
        age_s = recent.dimension.revisit(recent.bookmark)
        return None if age_s is None else RowText(recent.text, age_s)

    def keep(self, question: str, dimension: Dimension, hit: Hit, *, text: bytes) -> None:
        """Answer by this text from now on, as long as the row is where it was hit."""
        if max(len(question), len(text)) > MOST_BYTES:
            return
        self._rows.pop(question, None)
        if len(self._rows) == self._most_rows:
            del self._rows[next(iter(self._rows))]
        self._rows[question] = _Recent(dimension, hit.bookmark, text)


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

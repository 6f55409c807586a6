"""The row of one key as JSON at once, where it is cached and nothing has to be waited for.

Only a shorter way to what `engine_lookup` finds: all else is left to that.
"""

from dataclasses import dataclass

from lookup_core.answer import MOST_AGE_MS
from service.engine.dimension import Dimension
from service.http.answer_room import AnswerHold
from service.http.row_writer import RowWriters


@dataclass(frozen=True, slots=True)
class RowText:
    """A row that was a hit."""

    text: bytes
    age_ms: int


class RowTexts:
    """Finds and writes them, for all dimensions."""

    def __init__(self) -> None:
        self._writers = RowWriters()

    def find(self, dimension: Dimension, value: object, hold: AnswerHold) -> RowText | None:
        """The text of the row, which `hold` has taken; None, if a lookup has to find out.

        Raises InvalidRequest and Overloaded for a row without room.
        """
        hit = dimension.hit(value)
        if hit is None:
            return None
        text = self._writers.of(dimension.name, dimension.schema).text(hit.row)
        hold.take_text(text)
        return RowText(text, min(int(hit.age_s * 1000), MOST_AGE_MS))

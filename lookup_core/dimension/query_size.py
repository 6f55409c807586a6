"""How many keys a query may have, so that its rows are not too many bytes at once.

A guess from the rows that came before; which keys they are is the batcher's business.
"""

from lookup_core.protocol.answer_size import AnswerSize

QUERY_BYTES = 8 * 1024 * 1024  # of rows: while they land they are in memory about four times


class QuerySize:
    """The bound of one dimension's queries: `max_keys`, or fewer once rows are known as large."""

    def __init__(self, max_keys: int) -> None:
        self._max_keys = max_keys
        # Without a row nothing is large: until one came, those who ask are cautious.
        self._size = AnswerSize(1)

    @property
    def keys(self) -> int:
        """How many keys the next query may have, at least one."""
        return max(1, min(self._max_keys, QUERY_BYTES // self._size.record_bytes))

    def on_rows(self, count: int, rows_bytes: int, *, absent: int) -> None:
        """A query brought so many rows, if any, of so many bytes together; other keys had none."""
        if count:
            self._size.on_rows(count, rows_bytes)
        if absent:
            self._size.on_no_rows(absent)

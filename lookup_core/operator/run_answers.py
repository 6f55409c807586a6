"""Answers of one lookup to the rows of a run: their distinct keys, and the answers so far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.operator.answered_rows import MAX_JOINED_BYTES, AnsweredRows, longer
from lookup_core.operator.as_of import AsOf
from lookup_core.operator.element_queue import RowMask, RowPositions
from lookup_core.operator.encoded_keys import KeyPositions
from lookup_core.operator.row_products import Counts, Elements

STATUS_FIELDS: list[pa.Field] = [
    pa.field("outcome", pa.utf8()),
    pa.field("age_ms", pa.int64()),
    pa.field("error", pa.utf8()),
]
_LABELS = pa.array([outcome.label for outcome in Outcome])
_HAS_ROW = np.array([outcome.has_row for outcome in Outcome])
NO_DEFAULTS: Mapping[Outcome, pa.RecordBatch] = {}
_UNANSWERED = 255
_NO_KEY = -1  # as an index, behind all keys


class RunAnswers:
    """The distinct keys of n rows, and the answers to them.

    Keys become known in several parts; each part adds its keys behind those of the others.
    """

    def __init__(
        self,
        row_count: int,
        columns: pa.Schema,
        *,
        as_of: AsOf | None = None,
        defaults: Mapping[Outcome, pa.RecordBatch] = NO_DEFAULTS,
        max_joined_bytes: int = MAX_JOINED_BYTES,
    ) -> None:
        """`columns` is the schema of the dimension's rows.

        With `as_of`, answers hold lists of versions, and each row gets the one of its time.
        `defaults`: the row of keys with an outcome that has none, and for `Outcome.DEFAULT` that of
        missing ones in `without_row`; not with `as_of`.
        """
        self.row_count = row_count
        self.open_keys = 0  # without an answer
        self._as_of = as_of
        self._defaults = defaults
        self._key_of_row: KeyPositions = np.full(row_count, _NO_KEY, np.intp)
        self._rows_without_key = row_count
        self._are_keys_distinct = True  # each row with a key has one of its own
        self._outcomes = np.zeros(0, np.uint8)  # [keys]
        self._ages_ms = np.zeros(0, np.int64)  # [keys]
        self._errors: dict[int, ErrorCode] = {}  # {key: code}, few
        # By key; with `as_of` by row, since each row has its own version.
        owners = 0 if as_of is None else row_count
        self.found_rows = AnsweredRows(owners, columns, max_joined_bytes=max_joined_bytes)

    def add_keys(self, rows: RowPositions, key_of_row: KeyPositions, key_count: int) -> int:
        """Add the keys of rows that had none.

        `key_of_row` is the position of each row's key among the added ones. Returns the position of
        the first added key.
        """
        start = len(self._outcomes)
        self._are_keys_distinct &= key_count == len(rows)
        if len(rows) == self.row_count:
            self._key_of_row = key_of_row
        else:
            self._key_of_row[rows] = key_of_row + start
        self._rows_without_key -= len(rows)
        self._outcomes = longer(self._outcomes, key_count, _UNANSWERED)
        self._ages_ms = longer(self._ages_ms, key_count, 0)
        if self._as_of is None:
            self.found_rows.add_owners(key_count)
        self.open_keys += key_count
        return start

    @property
    def latest_ms(self) -> int | None:
        """The latest of the times at which rows need their versions, in milliseconds."""
        return None if self._as_of is None else self._as_of.event_time_ms

    def unanswered_rows(self) -> RowMask:
        """The rows without an answer."""
        is_open = np.append(self._outcomes == _UNANSWERED, True)  # the last one: no key
        return is_open[self._key_of_row]

    def store(self, answer: Answer) -> RowMask | None:
        """Store the new part of an answer; returns the rows that it answers, None without any.

        Raises ProtocolViolation for malformed version lists, before any change.
        """
        is_new = self._outcomes[answer.positions] == _UNANSWERED
        if not is_new.all():
            answer = answer.only(is_new)
        if not answer.size:
            return None
        keys = answer.positions
        rows = self._rows_of(keys)
        if answer.rows is not None:
            self._keep(answer.rows, keys, rows)
        elif self._defaults:
            self._add_defaults(keys, answer.outcomes)
        self._outcomes[keys] = answer.outcomes
        self._ages_ms[keys] = answer.ages_ms
        self._errors |= answer.errors
        self.open_keys -= len(keys)
        return rows

    def rows_without_key(self) -> RowPositions:
        """The rows whose keys were not added yet."""
        return np.flatnonzero(self._key_of_row == _NO_KEY)

    def without_row(self, key: int) -> Answer:
        """The answer to a key that no row matches: the default row of missing keys, or none."""
        answer = rowless_answer(np.array([key], np.int32), Outcome.MISSING)
        row = self._defaults.get(Outcome.DEFAULT)
        if row is None:
            return answer
        return replace(answer, outcomes=np.array([Outcome.DEFAULT], np.uint8), rows=row)

    def give_up(self, outcome: Outcome, error: ErrorCode) -> RowMask | None:
        """End the rows that wait for an answer in this way, and return them; None without any."""
        keys = np.flatnonzero(self._outcomes == _UNANSWERED)
        if not len(keys):
            return None
        self._outcomes[keys] = outcome
        self._add_defaults(keys, self._outcomes[keys])
        self._errors |= dict.fromkeys(keys.tolist(), error)
        self.open_keys = 0
        return self._rows_of(keys)

    def outcomes_at(self, rows: RowPositions) -> npt.NDArray[np.uint8]:
        """The outcomes of these rows, as values of `Outcome`."""
        outcomes = self._outcomes[self._keys_of(rows)]
        if self._as_of is not None:  # the key has versions, but none is valid then
            outcomes[_HAS_ROW[outcomes] & ~self.found_rows.has(rows)] = Outcome.MISSING
        return outcomes

    def has_row_at(self, rows: RowPositions) -> npt.NDArray[np.bool_]:
        """Which of these answered rows have a row of the dimension, or a default for theirs."""
        return self.found_rows.has(self._owners_of(rows))

    def columns_at(self, rows: RowPositions) -> list[pa.Array]:
        """The dimension's columns for these rows; null without a row."""
        return self.found_rows.take(self._owners_of(rows))

    def column_at(self, rows: RowPositions, column: int) -> pa.Array:
        """One of the dimension's columns for these rows; null without a row."""
        return self.found_rows.take(self._owners_of(rows), [column])[0]

    def counts_at(self, rows: RowPositions) -> Counts:
        """The length of the lists of the dimension's columns for these rows, 0 without a row."""
        return self.found_rows.counts(self._key_of_row[rows])

    def elements_at(self, rows: npt.NDArray[np.integer], elements: Elements) -> list[pa.Array]:
        """An element of each list for these rows, which may repeat; null for NO_ELEMENT."""
        return self.found_rows.take_elements(self._key_of_row[rows], elements)

    def element_bytes_at(
        self, rows: npt.NDArray[np.integer], elements: Elements
    ) -> npt.NDArray[np.int64]:
        """The bytes of what `elements_at` gives for each of these rows."""
        return self.found_rows.element_bytes(self._key_of_row[rows], elements)

    def status_at(self, rows: RowPositions) -> pa.StructArray:
        """Outcome, age and error of these rows, as `STATUS_FIELDS`; no age without a row."""
        keys = self._keys_of(rows)
        outcomes = self.outcomes_at(rows)
        labels = _LABELS.take(pa.array(outcomes, pa.uint8()))
        ages_ms = pa.array(self._ages_ms[keys], pa.int64(), mask=~_HAS_ROW[outcomes])
        errors = self._errors_of(keys)
        return pa.StructArray.from_arrays([labels, ages_ms, errors], fields=STATUS_FIELDS)

    def errors_with(self, outcome: Outcome) -> list[ErrorCode]:
        """The distinct error codes of keys with this outcome."""
        codes = {code for key, code in self._errors.items() if self._outcomes[key] == outcome}
        return sorted(codes)

    def first_rows_with(self, outcome: Outcome, *, most: int) -> RowPositions:
        """The first row of each key with this outcome, of at most `most` keys, ascending."""
        keys = np.flatnonzero(self._outcomes == outcome)[:most]
        rows = [np.flatnonzero(self._key_of_row == key)[0] for key in keys]
        return np.array(rows, np.intp)

    def most_bytes(self, count: int) -> int:
        """An upper bound of the bytes of this number of rows' columns."""
        if self._are_keys_distinct and not self._defaults:
            return self.found_rows.total_bytes
        return self.found_rows.max_row_bytes * count

    def bytes_at(self, rows: RowPositions) -> npt.NDArray[np.int64]:
        """The bytes of these rows' columns."""
        return self.found_rows.bytes_of(self._owners_of(rows))

    def check_invariants(self) -> None:
        """For tests: counts match, and keys without an answer have no error."""
        self.found_rows.check_invariants()
        assert self._rows_without_key == np.count_nonzero(self._key_of_row == _NO_KEY)
        assert int(self._key_of_row.max(initial=_NO_KEY)) < len(self._outcomes)
        assert self.open_keys == np.count_nonzero(self._outcomes == _UNANSWERED)
        assert not set(self._errors) & set(np.flatnonzero(self._outcomes == _UNANSWERED).tolist())

    def _keys_of(self, rows: RowPositions) -> KeyPositions:
        # Rows ascend: if there are as many as codes, they are all rows (the usual case, no copy).
        return self._key_of_row if len(rows) == len(self._key_of_row) else self._key_of_row[rows]

    def _owners_of(self, rows: RowPositions) -> npt.NDArray[np.integer]:
        return self._keys_of(rows) if self._as_of is None else rows

    def _keep(self, found: pa.RecordBatch, keys: npt.NDArray[np.int32], rows: RowMask) -> None:
        if self._as_of is None:
            self.found_rows.add_rows(keys, found)
            return
        owners = np.flatnonzero(rows)
        row_of_key = np.zeros(len(self._outcomes), np.int64)
        row_of_key[keys] = np.arange(len(keys))
        wanted = row_of_key[self._key_of_row[owners]]
        picked = self._as_of.pick.picked(found, wanted, self._as_of.times_us[owners])
        self.found_rows.add_rows(owners, picked.rows, picked.places)

    def _add_defaults(self, keys: npt.NDArray[np.integer], outcomes: npt.NDArray[np.uint8]) -> None:
        for outcome, row in self._defaults.items():
            owners = keys[outcomes == outcome]
            if len(owners):
                self.found_rows.add_rows(owners, row, np.zeros(len(owners), np.int64))

    def _rows_of(self, keys: npt.NDArray[np.integer]) -> RowMask:
        if len(keys) == len(self._outcomes) and not self._rows_without_key:
            return np.ones(len(self._key_of_row), np.bool_)
        is_key = np.zeros(len(self._outcomes) + 1, np.bool_)  # the last one: no key
        is_key[keys] = True
        return is_key[self._key_of_row]

    def _errors_of(self, keys: KeyPositions) -> pa.Array:
        if not self._errors:
            return pa.nulls(len(keys), pa.utf8())
        of_key = np.full(len(self._outcomes), None, object)
        for key, code in self._errors.items():
            of_key[key] = str(code)
        return pa.array(of_key, pa.utf8()).take(pa.array(keys, pa.int64()))


def pieces(
    answers: Sequence[RunAnswers], rows: RowPositions, *, max_bytes: int
) -> list[RowPositions]:
    """Split rows into parts whose columns take at most `max_bytes`, or of a single row.

    A large row of the dimension is repeated for every record with its key.
    """
    if sum(each.most_bytes(len(rows)) for each in answers) <= max_bytes:
        return [rows]
    sizes = sum(each.bytes_at(rows) for each in answers)
    return [rows[part] for part in bounded(np.asarray(sizes), max_bytes=max_bytes)]


def bounded(sizes: npt.NDArray[np.int64], *, max_bytes: int) -> Iterator[slice]:
    """Consecutive parts of these sizes, of at most `max_bytes` each, or of one."""
    total = np.cumsum(sizes)
    start = 0
    while start < len(total):
        before = int(total[start - 1]) if start else 0
        stop = max(int(np.searchsorted(total, before + max_bytes, side="right")), start + 1)
        yield slice(start, stop)
        start = stop

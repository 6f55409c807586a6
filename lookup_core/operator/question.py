"""Question: the lookup of a run of rows, with its distinct keys and the answers so far."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.errors import ErrorCode
from lookup_core.operator.answered_rows import JOINED_BYTES, AnsweredRows, longer
from lookup_core.operator.as_of import AsOf
from lookup_core.operator.element_queue import Positions, RowMask
from lookup_core.operator.encoded_keys import Codes
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
_NOT_ASKED = -1  # as an index, behind all keys


class Question:
    """The lookup of n rows: distinct keys, and the answers to them.

    The rows may be asked in several parts; each part adds its keys behind those of the others.
    """

    def __init__(
        self,
        row_count: int,
        columns: pa.Schema,
        *,
        as_of: AsOf | None = None,
        defaults: Mapping[Outcome, pa.RecordBatch] = NO_DEFAULTS,
        joined_bytes: int = JOINED_BYTES,
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
        self._codes: Codes = np.full(row_count, _NOT_ASKED, np.intp)  # [rows] position of its key
        self._rows_to_ask = row_count
        self._are_keys_distinct = True  # each row that was asked has a key of its own
        self._outcomes = np.zeros(0, np.uint8)  # [keys]
        self._ages_ms = np.zeros(0, np.int64)  # [keys]
        self._errors: dict[int, ErrorCode] = {}  # {key: code}, few
        # By key; with `as_of` by row, since each row has its own version.
        askers = 0 if as_of is None else row_count
        self._rows = AnsweredRows(askers, columns, joined_bytes=joined_bytes)

    def ask(self, rows: Positions, codes: Codes, key_count: int) -> int:
        """Add the keys of rows that were not asked before.

        `codes` is the position of each row's key among the added ones. Returns the position of the
        first added key.
        """
        start = len(self._outcomes)
        self._are_keys_distinct &= key_count == len(rows)
        if len(rows) == self.row_count:
            self._codes = codes
        else:
            self._codes[rows] = codes + start
        self._rows_to_ask -= len(rows)
        self._outcomes = longer(self._outcomes, key_count, _UNANSWERED)
        self._ages_ms = longer(self._ages_ms, key_count, 0)
        if self._as_of is None:
            self._rows.add_askers(key_count)
        self.open_keys += key_count
        return start

    @property
    def latest_ms(self) -> int | None:
        """The latest of the times at which rows need their versions, in milliseconds."""
        return None if self._as_of is None else self._as_of.event_time_ms

    def unanswered_rows(self) -> RowMask:
        """The rows without an answer, asked or not."""
        is_open = np.append(self._outcomes == _UNANSWERED, True)  # the last one: not asked
        return is_open[self._codes]

    @property
    def answer_bytes(self) -> int:
        """The memory of the answers so far."""
        return self._rows.nbytes

    def answer(self, answer: Answer) -> RowMask | None:
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

    def rows_to_ask(self) -> Positions:
        """The rows that were not asked yet."""
        return np.flatnonzero(self._codes == _NOT_ASKED)

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

    def outcomes_at(self, rows: Positions) -> npt.NDArray[np.uint8]:
        """The outcomes of these rows, as values of `Outcome`."""
        outcomes = self._outcomes[self._keys_of(rows)]
        if self._as_of is not None:  # the key has versions, but none is valid then
            outcomes[_HAS_ROW[outcomes] & ~self._rows.has(rows)] = Outcome.MISSING
        return outcomes

    def has_row_at(self, rows: Positions) -> npt.NDArray[np.bool_]:
        """Which of these answered rows have a row of the dimension, or a default for theirs."""
        return self._rows.has(self._askers_of(rows))

    def columns_at(self, rows: Positions) -> list[pa.Array]:
        """The dimension's columns for these rows; null without a row."""
        return self._rows.take(self._askers_of(rows))

    def column_at(self, rows: Positions, column: int) -> pa.Array:
        """One of the dimension's columns for these rows; null without a row."""
        return self._rows.take(self._askers_of(rows), [column])[0]

    def counts_at(self, rows: Positions) -> Counts:
        """The length of the lists of the dimension's columns for these rows, 0 without a row."""
        return self._rows.counts(self._codes[rows])

    def elements_at(self, rows: npt.NDArray[np.integer], elements: Elements) -> list[pa.Array]:
        """An element of each list for these rows, which may repeat; null for NO_ELEMENT."""
        return self._rows.take_elements(self._codes[rows], elements)

    def element_bytes_at(
        self, rows: npt.NDArray[np.integer], elements: Elements
    ) -> npt.NDArray[np.int64]:
        """The bytes of what `elements_at` gives for each of these rows."""
        return self._rows.element_bytes(self._codes[rows], elements)

    def status_at(self, rows: Positions) -> pa.StructArray:
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

    def first_rows_with(self, outcome: Outcome, *, most: int) -> Positions:
        """The first row of each key with this outcome, of at most `most` keys, ascending."""
        keys = np.flatnonzero(self._outcomes == outcome)[:most]
        rows = [np.flatnonzero(self._codes == key)[0] for key in keys]
        return np.array(rows, np.intp)

    def most_bytes(self, count: int) -> int:
        """An upper bound of the bytes of this number of rows' columns."""
        if self._are_keys_distinct and not self._defaults:
            return self._rows.nbytes
        return self._rows.max_row_bytes * count

    def bytes_at(self, rows: Positions) -> npt.NDArray[np.int64]:
        """The bytes of these rows' columns."""
        return self._rows.bytes_of(self._askers_of(rows))

    def check_invariants(self) -> None:
        """For tests: counts match, and keys without an answer have no error."""
        self._rows.check_invariants()
        assert self._rows_to_ask == np.count_nonzero(self._codes == _NOT_ASKED)
        assert int(self._codes.max(initial=_NOT_ASKED)) < len(self._outcomes)
        assert self.open_keys == np.count_nonzero(self._outcomes == _UNANSWERED)
        assert not set(self._errors) & set(np.flatnonzero(self._outcomes == _UNANSWERED).tolist())

    def _keys_of(self, rows: Positions) -> Codes:
        # Rows ascend: if there are as many as codes, they are all rows (the usual case, no copy).
        return self._codes if len(rows) == len(self._codes) else self._codes[rows]

    def _askers_of(self, rows: Positions) -> npt.NDArray[np.integer]:
        return self._keys_of(rows) if self._as_of is None else rows

    def _keep(self, found: pa.RecordBatch, keys: npt.NDArray[np.int32], rows: RowMask) -> None:
        if self._as_of is None:
            self._rows.add(keys, found)
            return
        askers = np.flatnonzero(rows)
        row_of_key = np.zeros(len(self._outcomes), np.int64)
        row_of_key[keys] = np.arange(len(keys))
        wanted = row_of_key[self._codes[askers]]
        picked = self._as_of.pick.picked(found, wanted, self._as_of.times_us[askers])
        self._rows.add(askers, picked.rows, picked.places)

    def _add_defaults(self, keys: npt.NDArray[np.integer], outcomes: npt.NDArray[np.uint8]) -> None:
        for outcome, row in self._defaults.items():
            askers = keys[outcomes == outcome]
            if len(askers):
                self._rows.add(askers, row, np.zeros(len(askers), np.int64))

    def _rows_of(self, keys: npt.NDArray[np.integer]) -> RowMask:
        if len(keys) == len(self._outcomes) and not self._rows_to_ask:
            return np.ones(len(self._codes), np.bool_)
        is_key = np.zeros(len(self._outcomes) + 1, np.bool_)  # the last one: not asked
        is_key[keys] = True
        return is_key[self._codes]

    def _errors_of(self, keys: Codes) -> pa.Array:
        if not self._errors:
            return pa.nulls(len(keys), pa.utf8())
        of_key = np.full(len(self._outcomes), None, object)
        for key, code in self._errors.items():
            of_key[key] = str(code)
        return pa.array(of_key, pa.utf8()).take(pa.array(keys, pa.int64()))


def pieces(questions: Sequence[Question], rows: Positions, *, max_bytes: int) -> list[Positions]:
    """Split rows into parts whose columns take at most `max_bytes`, or of a single row.

    A large row of the dimension is repeated for every record with its key.
    """
    if sum(each.most_bytes(len(rows)) for each in questions) <= max_bytes:
        return [rows]
    sizes = sum(each.bytes_at(rows) for each in questions)
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

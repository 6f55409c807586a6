"""Output batches of a lookup: casts of the dimension's columns, joined to the input or as a struct.

The operator decides which rows leave.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.errors import ErrorCode, InvalidRequest
from lookup_core.operator.element_queue import RowMask, RowPositions
from lookup_core.operator.records_in_flight import RunRows
from lookup_core.operator.row_products import OutputRows, RowProducts, TooManyRows
from lookup_core.operator.run_answers import STATUS_FIELDS, RunAnswers, bounded, pieces
from lookup_core.row_bytes import row_bytes
from spark_client.lookup_settings import JoinType

_MAX_MULTIPLIED_ROWS = 65_536  # in one batch


@dataclass(frozen=True, slots=True)
class ColumnCasts:
    """Exact casts from the columns that the sidecar sends to those of the output."""

    source: pa.Schema
    target: pa.Schema

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in the output's types; raises InvalidRequest if a value is not exact in them."""
        if self.source.equals(self.target):
            return rows
        columns = [
            _cast(column, self.target.field(index)) for index, column in enumerate(rows.columns)
        ]
        return pa.record_batch(columns, schema=self.target)


def column_casts(source: pa.Schema, target: pa.Schema, *, dimension: str) -> ColumnCasts:
    """The casts between columns of these names and types; raises InvalidRequest for other names.

    The types are the same, wider ones, or Spark's for those of Arrow that it lacks.
    """
    if source.names != target.names:
        sent, wanted = ", ".join(source.names), ", ".join(target.names)
        detail = f"{dimension!r} answers with ({sent}), not ({wanted})"
        raise InvalidRequest(ErrorCode.UNKNOWN_COLUMN, detail)
    return ColumnCasts(source, target)


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:  # as for nanoseconds
        detail = f"column {field.name!r} is {column.type} and does not become {field.type} exactly"
        raise InvalidRequest(ErrorCode.TYPE, detail) from error


@dataclass(frozen=True, slots=True)
class AddedPart:
    """What one lookup adds to the records."""

    columns: pa.Schema  # the dimension's; if it expands, those of one row
    how: JoinType = JoinType.LEFT
    prefix: str = ""
    status_column: str | None = None
    expands: bool = False  # a record leaves once for each row in the lists of its answer

    @property
    def fields(self) -> list[pa.Field]:
        """The fields of the output, behind those of the records and of earlier lookups."""
        fields = []
        if self.how.has_columns:
            fields = [pa.field(self.prefix + each.name, each.type) for each in self.columns]
        if self.status_column is not None:
            fields.append(pa.field(self.status_column, pa.struct(STATUS_FIELDS)))
        return fields

    @property
    def returned_fields(self) -> list[pa.Field]:
        """The fields of a function: as `fields`, but the columns as one list if it expands."""
        if not self.expands:
            return self.fields
        width = len(self.columns)
        return [pa.field("", pa.list_(pa.struct(self.fields[:width]))), *self.fields[width:]]

    @property
    def drops_records(self) -> bool:
        """Whether some records do not leave."""
        return self.how is not JoinType.LEFT

    def leaves(self, answers: RunAnswers, rows: RowPositions) -> RowMask:
        """Which of the rows leave, if the part `drops_records`."""
        if self.expands:
            return answers.counts_at(rows) > 0
        has_row = answers.has_row_at(rows)
        return ~has_row if self.how is JoinType.ANTI else has_row

    def arrays(self, answers: RunAnswers, rows: RowPositions) -> list[pa.Array]:
        """The columns of these rows, as `fields`; only the status, if the part expands."""
        arrays = answers.columns_at(rows) if self.how.has_columns and not self.expands else []
        if self.status_column is not None:
            arrays.append(answers.status_at(rows))
        return arrays

    def lists(self, answers: RunAnswers, rows: RowPositions) -> pa.ListArray:
        """The rows found for each of these rows, if the part expands."""
        counts = answers.counts_at(rows)
        ends = np.cumsum(counts)
        elements = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
        columns = answers.elements_at(np.repeat(rows, counts), elements)
        structs = pa.StructArray.from_arrays(columns, fields=self.fields[: len(self.columns)])
        return pa.ListArray.from_arrays(pa.array(np.append(0, ends), pa.int32()), structs)

    def bytes_at(self, answers: RunAnswers, rows: RowPositions) -> npt.NDArray[np.int64] | int:
        """The bytes of `arrays` for each of these rows, without the status."""
        return answers.bytes_at(rows) if self.how.has_columns and not self.expands else 0


@dataclass(frozen=True, slots=True)
class JoinedOutput:
    """Builds batches of records and of what each lookup adds to them, all with `schema`."""

    schema: pa.Schema
    parts: Sequence[AddedPart]
    width: int | None = None  # columns of the records in the output, the first ones; None: all

    def batches(self, run: RunRows, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """Batches of answered rows of a run, without the rows that the joins drop.

        The columns that lookups add to a batch have at most `max_bytes`, or it has one row. If a
        lookup expands, the bytes of the records count, too. Raises TooManyRows for one of the rows.
        """
        if self.width is not None:
            run = replace(run, records=run.records.select(list(range(self.width))))
        for part, answers in zip(self.parts, run.answers, strict=True):
            if part.drops_records:
                run = replace(run, rows=run.rows[part.leaves(answers, run.rows)])
        if any(part.expands for part in self.parts):
            yield from self._multiplied(run, max_bytes=max_bytes)
            return
        for rows in pieces(run.answers, run.rows, max_bytes=max_bytes):
            if len(rows):
                yield self._built(replace(run, rows=rows))

    def _built(self, run: RunRows) -> pa.RecordBatch:
        columns = _rows_of(run.records, run.rows).columns
        for part, answers in zip(self.parts, run.answers, strict=True):
            columns += part.arrays(answers, run.rows)
        return pa.record_batch(columns, schema=self.schema)

    def _multiplied(self, run: RunRows, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        answers = [
            answers for part, answers in zip(self.parts, run.answers, strict=True) if part.expands
        ]
        try:
            products = RowProducts([answers.counts_at(run.rows) for answers in answers])
        except TooManyRows as error:
            raise TooManyRows(int(run.rows[error.record]), error.counts) from None
        for start in range(0, products.size, _MAX_MULTIPLIED_ROWS):
            output = products.rows(start, min(start + _MAX_MULTIPLIED_ROWS, products.size))
            within = replace(run, rows=run.rows[output.start : output.stop])
            for rows in bounded(self._output_bytes(within, output), max_bytes=max_bytes):
                yield self._combined(within, output.part(rows))

    def _output_bytes(self, run: RunRows, output: OutputRows) -> npt.NDArray[np.int64]:
        """The bytes of each output row of these records, without its statuses."""
        own = row_bytes(_rows_of(run.records, run.rows))
        elements = iter(output.elements)
        total = np.zeros(len(output.records), np.int64)
        for part, answers in zip(self.parts, run.answers, strict=True):
            own += part.bytes_at(answers, run.rows)
            if part.expands:
                total += answers.element_bytes_at(run.rows[output.records], next(elements))
        return total + own[output.records]

    def _combined(self, run: RunRows, output: OutputRows) -> pa.RecordBatch:
        rows, elements = run.rows[output.records], iter(output.elements)
        records = pa.array(output.records)
        columns = _rows_of(run.records, run.rows).take(records).columns
        for part, answers in zip(self.parts, run.answers, strict=True):
            if part.expands:
                columns += answers.elements_at(rows, next(elements))
            columns += [array.take(records) for array in part.arrays(answers, run.rows)]
        return pa.record_batch(columns, schema=self.schema)

    def empty(self) -> pa.RecordBatch:
        """No rows, of the same schema."""
        return pa.record_batch([pa.nulls(0, kind) for kind in self.schema.types], self.schema)


def joined_output(
    records: pa.Schema, parts: Sequence[AddedPart], *, width: int | None = None
) -> JoinedOutput:
    """The output for records of this schema, with their first `width` columns, None for all.

    The caller has checked that names are distinct.
    """
    added = [field for part in parts for field in part.fields]
    return JoinedOutput(pa.schema([*list(records)[:width], *added]), parts, width)


def _rows_of(records: pa.RecordBatch, rows: RowPositions) -> pa.RecordBatch:
    if len(rows) == records.num_rows:
        return records
    if len(rows) and rows[-1] - rows[0] + 1 == len(rows):
        return records.slice(rows[0], len(rows))  # no copy
    return records.take(pa.array(rows.astype(np.int64)))


@dataclass(frozen=True, slots=True)
class StructOutput:
    """Builds batches of one struct column, from a single lookup."""

    columns: pa.Schema

    def batches(self, run: RunRows, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The structs for answered rows of a run, in batches of at most `max_bytes`, or of one row.

        NULL where there is no row.
        """
        (answers,) = run.answers
        for rows in pieces(run.answers, run.rows, max_bytes=max_bytes):
            is_absent = pa.array(~answers.has_row_at(rows))
            structs = pa.StructArray.from_arrays(
                answers.columns_at(rows), fields=list(self.columns), mask=is_absent
            )
            yield pa.record_batch([structs], ["row"])

    def empty(self) -> pa.RecordBatch:
        """No structs."""
        return pa.record_batch([pa.nulls(0, pa.struct(list(self.columns)))], ["row"])


@dataclass(frozen=True, slots=True)
class AddedOutput:
    """Builds batches of one struct column, with what all lookups add to a record.

    The fields have the names "0", "1" and so on. A lookup that expands has one field of its
    columns, a list of rows. If the lookups drop records, the last field is whether the record
    leaves. A single field stands alone: Spark copies structs.
    """

    parts: Sequence[AddedPart]

    @property
    def _fields(self) -> list[pa.Field]:
        fields = [field for part in self.parts for field in part.returned_fields]
        if drops_records(self.parts):
            fields.append(pa.field("", pa.bool_()))
        return [field.with_name(str(at)) for at, field in enumerate(fields)]

    def batches(self, run: RunRows, *, max_bytes: int) -> Iterator[pa.RecordBatch]:
        """The structs for answered rows of a run, in batches of at most `max_bytes`, or of one row.

        No row is left out.
        """
        for rows in pieces(run.answers, run.rows, max_bytes=max_bytes):
            yield self._built(replace(run, rows=rows))

    def _built(self, run: RunRows) -> pa.RecordBatch:
        pairs = list(zip(self.parts, run.answers, strict=True))
        arrays = []
        for part, answers in pairs:
            if part.expands:
                arrays.append(part.lists(answers, run.rows))
            arrays += part.arrays(answers, run.rows)
        if drops_records(self.parts):
            leaves = np.ones(len(run.rows), np.bool_)
            for part, answers in pairs:
                if part.drops_records:
                    leaves &= part.leaves(answers, run.rows)
            arrays.append(pa.array(leaves))
        return self._batch(arrays)

    def empty(self) -> pa.RecordBatch:
        """No structs."""
        return self._batch([pa.nulls(0, field.type) for field in self._fields])

    def _batch(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        whole = arrays[0]
        if arrays[1:]:
            whole = pa.StructArray.from_arrays(arrays, fields=self._fields)
        return pa.record_batch([whole], ["row"])


def drops_records(parts: Sequence[AddedPart]) -> bool:
    """Whether some records do not leave."""
    return any(part.drops_records for part in parts)


Output = JoinedOutput | StructOutput | AddedOutput

"""Parquet file or folder as one table: its schema, types, rows and file identities."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import types

from lookup_core.dimension.dimension_events import MAX_QUERY_ROWS_BYTES, FetchedRows, UnfitRows
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode, nearest_name
from lookup_core.row_bytes import ROW_BYTES, largest_column, row_bytes
from service.connectors.parquet.row_index import RowIndex
from service.connectors.parquet.rows import row_fields
from service.file_identity import FileIdentity

_UNCHANGED = (
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.bool_(), pa.utf8(), pa.binary(), pa.date32()),
)
_PLAIN_TYPES = {kind: kind for kind in _UNCHANGED} | {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_utf8(): pa.utf8(),
    pa.string_view(): pa.utf8(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
_MAX_DECIMAL_DIGITS = 38  # decimal128, and Spark


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """The type of a stored column in lookups; None for an unsupported type."""
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_decimal(kind) and kind.precision <= _MAX_DECIMAL_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    return _PLAIN_TYPES.get(kind)


_IS_KEY_TYPE = (
    *(types.is_signed_integer, types.is_decimal128, types.is_boolean),
    *(types.is_string, types.is_binary, types.is_fixed_size_binary),
    *(types.is_date32, types.is_timestamp),
)


def is_key_type(kind: pa.DataType) -> bool:
    """Whether keys may have this type; floating point, for example, has no exact equality."""
    return any(is_type(kind) for is_type in _IS_KEY_TYPE)


@dataclass(frozen=True, slots=True)
class RowLimit:
    """The bytes of one row, or of all rows of a key with several."""

    row_bytes: int = ROW_BYTES
    has_several_rows: bool = False

    def large(
        self, ordinals: npt.NDArray[np.int32], sizes: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int32]:
        """The keys with rows that are too large; row i has `sizes[i]` bytes."""
        if not self.has_several_rows:
            return np.unique(ordinals[sizes > self.row_bytes])
        together = np.bincount(ordinals, weights=sizes)
        return np.flatnonzero(together > self.row_bytes).astype(np.int32)


ONE_ROW = RowLimit()


class ParquetFile:
    """Rows of a file in memory, with an index over the key; `table` has the schema's types."""

    def __init__(
        self, schema: DimensionSchema, table: pa.Table, *, limit: RowLimit = ONE_ROW
    ) -> None:
        rows = pa.table([table[name] for name in schema.columns.names], schema=schema.columns)
        self.schema = schema
        # One chunk: `take` on several chunks would combine them at each call.
        self.rows = rows.combine_chunks()
        self._index = RowIndex([table[name] for name in schema.key.names])
        self._limit = limit
        sizes = [np.zeros(0, np.int64), *map(row_bytes, self.rows.to_batches())]
        largest = np.iinfo(np.int32).max  # a column has less in all
        self._sizes = np.minimum(np.concatenate(sizes), largest).astype(np.int32)

    def find(self, keys: pa.RecordBatch) -> FetchedRows:
        """The rows of the keys, which have the schema's types, up to MAX_QUERY_ROWS_BYTES.

        Rows of further keys are deferred. Rows that are too large are not copied.
        """
        matches = self._index.find(keys)
        ordinals, sizes = matches.ordinals, self._sizes[matches.positions].astype(np.int64)
        if sizes.sum() <= min(self._limit.row_bytes, MAX_QUERY_ROWS_BYTES):
            return FetchedRows(ordinals, self._rows(matches.positions))
        large = self._limit.large(ordinals, sizes)
        is_kept = ~np.isin(ordinals, large)
        if not self._limit.has_several_rows:  # two show that a key is ambiguous
            is_kept &= np.arange(len(ordinals)) < np.searchsorted(ordinals, ordinals) + 2
        totals = np.cumsum(np.bincount(ordinals, weights=sizes * is_kept))
        is_beyond = is_kept & (totals[ordinals] > MAX_QUERY_ROWS_BYTES)
        deferred = np.setdiff1d(ordinals[is_beyond], ordinals[is_kept][:1])
        is_kept &= ~np.isin(ordinals, deferred)
        unfit = []
        if large.size:
            first = matches.positions[np.flatnonzero(ordinals == large[0])[0]]
            names, limit = [largest_column(self.rows.slice(first, 1))], self._limit.row_bytes
            unfit = [UnfitRows.too_large(large, row_bytes=limit, columns=names)]
        rows = self._rows(matches.positions[is_kept])
        return FetchedRows(ordinals[is_kept], rows, unfit=unfit, deferred=deferred)

    def _rows(self, positions: npt.NDArray[np.int64]) -> pa.RecordBatch:
        found = self.rows.take(pa.array(positions, pa.int64()))
        columns = [column.combine_chunks() for column in found.columns]
        return pa.record_batch(columns, schema=self.schema.columns)


def load_parquet_file(
    path: Path,
    key: Sequence[str],
    *,
    columns: Sequence[str] | None,
    limit: RowLimit = ONE_ROW,
) -> ParquetFile:
    """Read the key and the columns (`None`: all but the key) of the file or folder.

    Raises BackendError (`table_unavailable`, `forbidden`) with the file, and with the column if it
    is missing or has an unsupported type.
    """
    with parquet_errors(path):
        dataset = parquet_dataset(path)
        schema = _plain_schema(path, dataset.schema, key=key, columns=columns)
        fields = row_fields(schema)
        table = dataset.to_table(columns=fields.names)
    arrays = [_plain_column(path, table[field.name], field) for field in fields]
    return ParquetFile(schema, pa.table(arrays, schema=fields), limit=limit)


def parquet_schema(
    path: Path, key: Sequence[str], *, columns: Sequence[str] | None
) -> DimensionSchema:
    """The schema that `load_parquet_file` would return, with the same errors; reads no rows."""
    with parquet_errors(path):
        return _plain_schema(path, parquet_dataset(path).schema, key=key, columns=columns)


def check_parquet_schema(
    path: Path, dataset: ds.Dataset, described: DimensionSchema, *, columns: Sequence[str] | None
) -> None:
    """Raise BackendError `schema_changed` if the file's key or columns changed."""
    found = _plain_schema(path, dataset.schema, key=described.key.names, columns=columns)
    refuse_other_columns(path, found, described)


def refuse_other_columns(path: Path, found: DimensionSchema, described: DimensionSchema) -> None:
    """Raise BackendError `schema_changed` unless both schemas are the same."""
    if not found.is_same(described):
        detail = f"{path}: its columns changed since its schema was read"
        raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)


def parquet_dataset(path: Path, *, schema: pa.Schema | None = None) -> ds.Dataset:
    """The file or folder, within `parquet_errors`; None reads the schema of one of its files."""
    partitioning = "hive" if path.is_dir() else None
    dataset = ds.dataset(path, schema=schema, format="parquet", partitioning=partitioning)
    if not dataset.files:
        raise _unavailable(path, "the folder has no files")
    return dataset


def parquet_identities(path: Path) -> Mapping[str, FileIdentity]:
    """The current files by their paths; raises BackendError."""
    with parquet_errors(path):
        # An empty schema: files are listed, none is opened.
        files = parquet_dataset(path, schema=pa.schema([])).files if path.is_dir() else [str(path)]
        return {file: FileIdentity.of(file) for file in files}


@contextmanager
def unreplaced_files(path: Path) -> Iterator[Mapping[str, FileIdentity]]:
    """The current files; raises BackendError at the end if one was replaced during the read."""
    identities = parquet_identities(path)
    yield identities
    if parquet_identities(path) != identities:
        raise replaced_file(path)


def replaced_file(path: Path) -> BackendError:
    """The error of a read during which the file was replaced."""
    return _unavailable(path, "was replaced during the read")


def _plain_schema(
    path: Path, stored: pa.Schema, *, key: Sequence[str], columns: Sequence[str] | None
) -> DimensionSchema:
    names = columns or [name for name in stored.names if name not in key]
    if not names:
        raise _unavailable(path, "no column other than the key; add one to the file")
    schema = DimensionSchema(
        key=pa.schema([_plain_field(path, stored, name) for name in key]),
        columns=pa.schema([_plain_field(path, stored, name) for name in names]),
    )
    for field in schema.key:
        if not is_key_type(field.type):
            raise _unavailable(
                path, f"{field.name} is {field.type}, which cannot be a key; use another column"
            )
    return schema


def _plain_field(path: Path, stored: pa.Schema, name: str) -> pa.Field:
    if name not in stored.names:
        raise _unavailable(path, f"no column {name}{nearest_name(name, stored.names)}")
    kind = stored.field(name).type
    plain = plain_type(kind)
    if plain is None:
        reason = f"column {name} is {kind}, which lookups do not support; list other columns"
        raise _unavailable(path, reason)
    return pa.field(name, plain)


def _plain_column(path: Path, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        reason = f"column {field.name} is {column.type} and does not fit {field.type} exactly"
        raise _unavailable(path, reason) from error


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Raise BackendError, chained, for every error of a file read."""
    try:
        yield
    except FileNotFoundError as error:
        siblings = [entry.name for entry in path.parent.glob("*.parquet")]
        raise _unavailable(path, f"no such file{nearest_name(path.name, siblings)}") from error
    except PermissionError as error:
        raise BackendError(ErrorCode.FORBIDDEN, f"{path}: permission denied") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unavailable(path, f"cannot be read as Parquet ({error})") from error


def _unavailable(path: Path, reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"{path}: {reason}")

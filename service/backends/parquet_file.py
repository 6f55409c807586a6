"""A Parquet file (or folder of them) as a table of rows that can be looked up.

All of it is read at once and blocks: the event loop's side is `parquet`.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from lookup_core.nearest_name import nearest_name
from service.backends.key_types import is_key_type
from service.backends.parquet_types import plain_type
from service.backends.row_index import RowIndex


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """What is kept of a file: the offered columns, and the index over the key."""

    schema: DimensionSchema
    rows: pa.Table
    index: RowIndex


def load_parquet_file(
    path: Path, key: Sequence[str], *, columns: Sequence[str] | None
) -> ParquetFile:
    """Read the key and the columns (`None`: all but the key) of the file or folder.

    Raises BackendError (`table_unavailable`, `forbidden`) naming the file, and the column if one is
    missing or has a type that cannot be looked up.
    """
    with parquet_errors(path):
        dataset = parquet_dataset(path)
        schema = _plain_schema(path, dataset.schema, key=key, columns=columns)
        fields = {field.name: field for field in (*schema.key, *schema.columns)}
        table = dataset.to_table(columns=list(fields))
    plain = {name: _plain_column(path, table.column(name), field) for name, field in fields.items()}
    index = RowIndex([plain[name] for name in key])
    rows = pa.table([plain[name] for name in schema.columns.names], schema=schema.columns)
    # In one piece: to take rows out of several, Arrow makes one of them first, each time.
    return ParquetFile(schema, rows.combine_chunks(), index)


def parquet_schema(
    path: Path, key: Sequence[str], *, columns: Sequence[str] | None
) -> DimensionSchema:
    """What `load_parquet_file` would find, without reading rows; raises as it does."""
    with parquet_errors(path):
        return _plain_schema(path, parquet_dataset(path).schema, key=key, columns=columns)


def parquet_dataset(path: Path) -> ds.Dataset:
    """The file, or all files of the folder; to be opened within `parquet_errors`."""
    return ds.dataset(path, format="parquet", partitioning="hive" if path.is_dir() else None)


def _plain_schema(
    path: Path, stored: pa.Schema, *, key: Sequence[str], columns: Sequence[str] | None
) -> DimensionSchema:
    names = columns or [name for name in stored.names if name not in key]
    if not names:
        raise _unavailable(path, "no column besides the key; name the columns, e.g. the key itself")
    schema = DimensionSchema(
        key=pa.schema([_plain_field(path, stored, name) for name in key]),
        columns=pa.schema([_plain_field(path, stored, name) for name in names]),
    )
    for field in schema.key:
        if not is_key_type(field.type):
            raise _unavailable(path, f"{field.name} is {field.type}, which cannot be a key")
    return schema


def _plain_field(path: Path, stored: pa.Schema, name: str) -> pa.Field:
    if name not in stored.names:
        raise _unavailable(path, f"no column {name}{nearest_name(name, stored.names)}")
    kind = stored.field(name).type
    plain = plain_type(kind)
    if plain is None:
        raise _unavailable(
            path, f"column {name} is {kind}, which lookups cannot carry; name others"
        )
    return pa.field(name, plain)


def _plain_column(path: Path, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        reason = f"column {field.name} is {column.type} and does not fit {field.type} exactly"
        raise _unavailable(path, reason) from error


@contextmanager
def parquet_errors(path: Path) -> Iterator[None]:
    """Raise BackendError, chained, for all that reading a file can fail with."""
    try:
        yield
    except FileNotFoundError as error:
        siblings = [entry.name for entry in path.parent.glob("*.parquet")]
        raise _unavailable(path, f"no such file{nearest_name(path.name, siblings)}") from error
    except PermissionError as error:
        raise BackendError(ErrorCode.FORBIDDEN, f"{path}: may not be read") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _unavailable(path, f"cannot be read as Parquet ({error})") from error


def _unavailable(path: Path, reason: str) -> BackendError:
    return BackendError(ErrorCode.TABLE_UNAVAILABLE, f"{path}: {reason}")

"""Fake sidecar for tests of jobs: rows in memory, behind a Unix socket of the driver.

It needs neither the service nor a database. It speaks the real protocol, so that the client of the
job is the real one.
"""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.error_texts import ErrorScope
from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.arrow_payload import decode_schema, encode_schema
from spark_client.driver.sidecar import Sidecar
from spark_client.testing.fake_server import MemoryServer
from spark_client.testing.fake_sidecar import MemorySidecar
from spark_client.testing.served_dimension import ServedDimension

Row = Mapping[str, object]


class FakeDimension:
    """Rows of one dimension, and its answers to keys without a row."""

    def __init__(  # noqa: PLR0913 -- each is an option of a dimension
        self,
        rows: pa.Table | Sequence[Row],
        *,
        key: str | Sequence[str],
        match: str | None = None,
        valid_from: str | None = None,
        valid_to: str | None = None,
        default: Row | None = None,
        errors: Mapping[object, str] | None = None,
    ) -> None:
        """Take the rows of a dimension.

        Args:
            rows: an Arrow table, or dicts; `pyarrow.Table.from_pandas` makes a table of a pandas
                DataFrame. Integers of dicts are `bigint`, and absent values NULL.
            key: the column of the key, or several in the order of the dimension's key.
            match: `"all"` as in the configuration: a key has a list of rows. By default, the last
                row of a key counts.
            valid_from: with `valid_to`, the columns of versions, for lookups with `as_of`.
            valid_to: None: a version ends when the next one begins.
            default: the row of missing keys; columns that it lacks are NULL.
            errors: codes of failing keys, such as `{9: "backend_unavailable"}`; a key of several
                columns is a tuple. The code `"timeout"` gives the outcome `timeout`.

        Raises:
            ValueError: no rows, a column without a type or with one that cannot be looked up, an
                unknown or repeated column, an option that does not fit the rows, or an error code
                that no key has.

        """
        names = (key,) if isinstance(key, str) else tuple(key)
        table = rows if isinstance(rows, pa.Table) else _table(rows)
        used = [*names, *(default or {}), *(name for name in (valid_from, valid_to) if name)]
        _check_columns(table, names, used)
        if match not in {None, "all"}:
            raise ValueError(f"match={match!r}: it is None or 'all'")
        if (valid_to or match) and (valid_from is None) != (match is not None):
            raise ValueError("valid_to needs valid_from, and match excludes both")
        self.served = ServedDimension(
            table,
            names,
            errors=_errors(errors or {}, parts=len(names)),
            versions=None if valid_from is None else VersionColumns(valid_from, valid_to),
            has_all_rows=match == "all",
            default=default,
            fills_missing=True,
        )
        try:
            _ = self.served.default_row  # made now, because its values are the caller's
        except (pa.ArrowException, TypeError) as error:
            raise ValueError(f"default does not fit the columns of the rows: {error}") from error


class FakeSidecar:
    """Serves dimensions within a `with` block, whose variable is a `Sidecar`.

    Use: `with FakeSidecar({"customers": FakeDimension(rows, key="id")}) as dims:`. The executors
    must run on the driver's machine. Rows have the outcome `hit` and an age of 7 ms; nothing is
    cached, and `max_age` and `retry_missing` have no effect. The end of the block ends running
    lookups.
    """

    def __init__(self, dimensions: Mapping[str, FakeDimension]) -> None:
        """Take the dimensions by name."""
        self._dimensions = dict(dimensions)
        self._open_blocks: list[ExitStack] = []  # they may be nested

    def __enter__(self) -> Sidecar:
        """Start the server, and return its address with all lookups."""
        served = {name: each.served for name, each in self._dimensions.items()}
        server = MemoryServer(MemorySidecar(served))
        folder = tempfile.mkdtemp(prefix="sidelook-fake-")
        with ExitStack() as stack:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            dims = Sidecar(stack.enter_context(server.at(Path(folder) / "sidelook.sock")))
            self._open_blocks.append(stack.pop_all())
        return dims

    def __exit__(self, *_: object) -> None:
        """Stop the server of the innermost block."""
        self._open_blocks.pop().close()


def _table(rows: Sequence[Row]) -> pa.Table:
    if not rows:
        raise ValueError("no rows: give an Arrow table, which has the types of the columns")
    names = dict.fromkeys(chain.from_iterable(rows))
    return pa.table({name: [row.get(name) for row in rows] for name in names})


def _check_columns(table: pa.Table, key: Sequence[str], used: Iterable[str]) -> None:
    listed = ", ".join(table.column_names)
    if missing := sorted(set(used) - set(table.column_names)):
        raise ValueError(f"no column {', '.join(missing)} in the rows; they have: {listed}")
    if not key or len({*key}) < len(key) or len({*table.column_names}) < table.num_columns:
        raise ValueError(f"a column is repeated, or the key has none: {key!r} of {listed}")
    for column in table.schema:
        try:
            decode_schema(encode_schema(pa.schema([column])), may_be_nested=True)
        except ProtocolViolation as error:
            remedy = "give an Arrow table with another type for it"
            raise ValueError(f"{column.name!r} has type {column.type}: {remedy}") from error


def _errors(errors: Mapping[object, str], *, parts: int) -> dict[tuple[object, ...], ErrorCode]:
    found = {}
    for key, text in errors.items():
        code = ErrorCode(text)
        if code.scope not in {ErrorScope.KEY, ErrorScope.BACKEND}:
            raise ValueError(f"{text!r} is not the error of a key")
        values = key if isinstance(key, tuple) else (key,)
        if len(values) != parts:
            raise ValueError(f"errors has the key {key!r}; a key has {parts} values")
        found[values] = code
    return found

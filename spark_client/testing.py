"""Fake sidecar for tests of jobs: rows in memory, behind a Unix socket of the driver.

It needs neither the service nor a database. It speaks the real protocol, so that the client of the
job is the real one.
"""

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from lookup_core.dimension_schema import VersionColumns
from lookup_core.errors import ErrorCode
from spark_client import fake_sidecar as memory
from spark_client.fake_server import MemoryServer
from spark_client.sidecar import Sidecar

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
            rows: an Arrow table, or dicts with equal names; `pyarrow.Table.from_pandas` makes a
                table of a pandas DataFrame. Integers of dicts are `bigint`.
            key: the column of the key, or several in the order of the dimension's key.
            match: `"all"` as in the configuration: a key has a list of rows. By default, the last
                row of a key counts.
            valid_from: with `valid_to`, the columns of versions, for lookups with `as_of`.
            valid_to: None: a version ends when the next one begins.
            default: the row of missing keys; columns that it lacks are NULL.
            errors: codes of failing keys, such as `{9: "backend_unavailable"}`; a key of several
                columns is a tuple. The code `"timeout"` gives the outcome `timeout`.

        Raises:
            ValueError: a column of the key or of versions is not in the rows, another `match`, or
                an unknown error code.

        """
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(list(rows))
        names = (key,) if isinstance(key, str) else tuple(key)
        used = [*names, *(name for name in (valid_from, valid_to) if name is not None)]
        if missing := sorted(set(used) - set(table.column_names)):
            listed = ", ".join(table.column_names)
            raise ValueError(f"no column {', '.join(missing)} in the rows; they have: {listed}")
        if match not in {None, "all"}:
            raise ValueError(f"match={match!r}: it is None or 'all'")
        self.served = memory.FakeDimension(
            table,
            names,
            errors={_as_tuple(failed): ErrorCode(code) for failed, code in (errors or {}).items()},
            versions=None if valid_from is None else VersionColumns(valid_from, valid_to),
            has_all_rows=match == "all",
            default=default,
            fills_missing=True,
        )


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
        self._open = ExitStack()

    def __enter__(self) -> Sidecar:
        """Start the server, and return its address with all lookups."""
        served = {name: each.served for name, each in self._dimensions.items()}
        server = MemoryServer(memory.MemorySidecar(served))
        folder = tempfile.mkdtemp(prefix="sidelook-fake-")
        self._open.callback(shutil.rmtree, folder, ignore_errors=True)
        return Sidecar(self._open.enter_context(server.at(Path(folder) / "sidelook.sock")))

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self._open.close()


def _as_tuple(key: object) -> tuple[object, ...]:
    return key if isinstance(key, tuple) else (key,)

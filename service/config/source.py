"""`source`: the PostgreSQL table or query, or the Parquet file of a dimension.

Reads secret files, but opens no connection and reads no rows.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from service.config.postgres_address import (
    Dsn,
    SqlText,
    check_dsn,
)
from service.config.secrets import SecretFile
from service.config.section import FilePath, Given, Section, rule
from service.file_identity import read_secret
from service.postgres_dsn import connect_timeout_s, without_connect_timeout

# What makes another value of a condition without a change of the row, or reads other rows, and is
# no function: those are in the catalog, which the connector reads.
_CHANGING_WORD = re.compile(
    r"\b(select|table|values|(current|session|system)_user|user|local(time|timestamp)"
    r"|current_(date|time|timestamp|role|catalog|schema))\b",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|--[^\n]*""")
# As a time, also with more behind it: 'today 12:00'. Safe for other texts, too.
_CHANGING_TEXT = re.compile(
    r"['$][^'$]*\b(now|today|tomorrow|yesterday)\b[^'$]*['$]", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """What identifies a database: dimensions with the same address share its connections."""

    dsn: SecretStr | None
    dsn_file: Path | None
    pgbouncer: bool


class PostgresSource(Section):
    """A PostgreSQL table, view or query.

    Set exactly one of `table` and `query`, and exactly one of `dsn` and `dsn_file`.
    """

    kind: Literal["postgres"]
    """Kind of the source."""
    table: SqlText | None = Field(default=None, min_length=1, max_length=255)
    """Table, partitioned table, view, materialized view or foreign table, as in SQL:
    `schema.table`."""
    query: SqlText | None = Field(default=None, min_length=1)
    """One SELECT instead of a table. A query has no change feed."""
    where: SqlText | None = Field(default=None, min_length=1)
    """SQL condition, such as `deleted_at IS NULL`. Lookups do not find other rows."""
    dsn: Dsn | None = None
    """Address without a password, such as `postgresql://user@host:5432/database`."""
    dsn_file: SecretFile | None = None
    """File with the address and its password. Other users must not be able to read it."""
    require_index: bool = Field(default=False, strict=True)
    """Whether a table without an index on the key is refused. `false`: the sidecar only warns."""
    pgbouncer: bool = Field(default=False, strict=True)
    """Whether the address is that of a PgBouncer in transaction mode."""

    @rule("query")
    def _is_the_only_relation(cls, query: str | None, given: Given) -> None:
        # A faulty table causes no second fault.
        if "table" in given and (given["table"] is None) == (query is None):
            raise ValueError("set exactly one of source.table and source.query")

    @field_validator("dsn_file", mode="before")
    @classmethod
    def _is_the_only_address(cls, dsn_file: object, info: ValidationInfo) -> object:
        # Before the file is read, whose faults do not matter then.
        has_dsn = info.data.get("dsn", "faulty") is not None
        if has_dsn == (dsn_file is not None):
            raise ValueError("set exactly one of source.dsn and source.dsn_file")
        return dsn_file

    @rule("dsn_file")
    def _holds_an_address(cls, dsn_file: Path | None, _given: Given) -> None:
        if dsn_file is not None:
            check_dsn(SecretStr(read_secret(dsn_file)))

    @property
    def address(self) -> DatabaseAddress:
        """Return the address as it is written: no file is read, no name is resolved."""
        return DatabaseAddress(self.dsn, self.dsn_file, self.pgbouncer)

    @property
    def relation(self) -> str:
        """The table, or how a query is named in messages."""
        return "source.query" if self.table is None else self.table

    @property
    def feed_fault(self) -> str | None:
        """Why no feed can report all changes of the rows; None if one can, by this text alone.

        The connector refuses functions that may change, by the catalog.
        """
        if self.query is not None:
            return "cannot follow a query, whose tables report no changes of its rows"
        where = self.where or ""
        found = _CHANGING_WORD.search(_QUOTED.sub(" ", where)) or _CHANGING_TEXT.search(where)
        if found is None:
            return None
        what = found[0] if found.re is _CHANGING_TEXT else found[0].lower()
        return f"cannot follow source.where, whose result may change without the row: {what}"

    def read_dsn(self) -> str:
        """The address for asyncpg with its password, read from the file; raises OSError."""
        return without_connect_timeout(self._read_text())

    def read_new_dsn(self) -> str:
        """`read_dsn` of a changed file; raises OSError, or ValueError for a fault."""
        text = check_dsn(SecretStr(self._read_text())).get_secret_value()
        return without_connect_timeout(text)

    def read_connect_timeout_s(self) -> float | None:
        """The `connect_timeout` of the address at the start, None without one; raises OSError."""
        return connect_timeout_s(self._read_text())

    def _read_text(self) -> str:
        if self.dsn is not None:
            return self.dsn.get_secret_value()
        assert self.dsn_file is not None, "validated: one of both is set"
        return read_secret(self.dsn_file)


class ParquetSource(Section):
    """A Parquet file."""

    kind: Literal["parquet"]
    """Kind of the source."""
    path: FilePath
    """Path of the file."""


Source = Annotated[PostgresSource | ParquetSource, Field(discriminator="kind")]

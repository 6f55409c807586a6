"""`source`: the PostgreSQL table or the Parquet file of a dimension.

Reads secret files, but opens no connection and reads no rows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from service.config.secrets import Dsn, SecretFile, check_dsn, read_secret
from service.config.section import Section


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """What identifies a database: dimensions with the same address share its connections."""

    dsn: SecretStr | None
    dsn_file: Path | None
    pgbouncer: bool


class PostgresSource(Section):
    """A PostgreSQL table; the address is given here or in a file."""

    kind: Literal["postgres"]
    table: str = Field(min_length=1, max_length=255, description="as in SQL: schema.table")
    dsn: Dsn | None = Field(default=None, description="postgresql://…, without a password")
    dsn_file: SecretFile | None = Field(
        default=None, description="file with the address and its password"
    )
    require_index: bool = Field(
        default=False,
        strict=True,
        description="refuse the table if there is no index on the key",
    )
    pgbouncer: bool = Field(
        default=False,
        strict=True,
        description="the address leads to a PgBouncer that pools transactions",
    )

    @field_validator("dsn_file", mode="before")
    @classmethod
    def _is_the_only_address(cls, dsn_file: object, info: ValidationInfo) -> object:
        # Before the file is read, whose faults do not matter then.
        has_dsn = info.data.get("dsn", "faulty") is not None
        if has_dsn == (dsn_file is not None):
            raise ValueError("set exactly one of source.dsn and source.dsn_file")
        return dsn_file

    @field_validator("dsn_file", mode="after")
    @classmethod
    def _holds_an_address(cls, dsn_file: Path | None) -> Path | None:
        if dsn_file is not None:
            check_dsn(SecretStr(read_secret(dsn_file)))
        return dsn_file

    @property
    def address(self) -> DatabaseAddress:
        """Return the address as it is written: no file is read, no name is resolved."""
        return DatabaseAddress(self.dsn, self.dsn_file, self.pgbouncer)

    def read_dsn(self) -> str:
        """Return the address with its password, read from the file; raises OSError."""
        if self.dsn is not None:
            return self.dsn.get_secret_value()
        assert self.dsn_file is not None, "validated: one of both is set"
        return read_secret(self.dsn_file)


class ParquetSource(Section):
    """A Parquet file; a relative path starts at the configuration's folder."""

    kind: Literal["parquet"]
    path: Path


Source = Annotated[PostgresSource | ParquetSource, Field(discriminator="kind")]

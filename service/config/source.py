"""Where a dimension's rows live: a PostgreSQL table or a Parquet file.

Opens no connection and reads no rows; only secret files are looked into.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator

from service.config.secrets import Dsn, SecretFile, check_dsn, read_secret
from service.config.section import Section


class PostgresSource(Section):
    """A table of a PostgreSQL database, whose address stands here or in a file of its own."""

    kind: Literal["postgres"]
    table: str = Field(min_length=1, max_length=255, description="as in SQL: schema.table")
    dsn: Dsn | None = Field(default=None, description="postgresql://…, without a password")
    dsn_file: SecretFile | None = Field(
        default=None, description="file that holds the address, with its password"
    )
    require_index: bool = Field(
        default=False,
        strict=True,
        description="refuse the table while no index leads from the key to its rows",
    )
    pgbouncer: bool = Field(
        default=False,
        strict=True,
        description="the address is that of a PgBouncer that pools transactions",
    )

    @field_validator("dsn_file", mode="before")
    @classmethod
    def _is_the_only_address(cls, dsn_file: object, info: ValidationInfo) -> object:
        # Before the file is looked at: what is wrong with it does not matter then.
        has_dsn = info.data.get("dsn", "faulty") is not None
        if has_dsn == (dsn_file is not None):
            raise ValueError("give exactly one of source.dsn and source.dsn_file")
        return dsn_file

    @field_validator("dsn_file", mode="after")
    @classmethod
    def _holds_an_address(cls, dsn_file: Path | None) -> Path | None:
        if dsn_file is not None:
            check_dsn(SecretStr(read_secret(dsn_file)))
        return dsn_file

    def read_dsn(self) -> str:
        """The address with its secrets, from the file each time anew; raises OSError."""
        if self.dsn is not None:
            return self.dsn.get_secret_value()
        assert self.dsn_file is not None, "one of both is set, as validated"
        return read_secret(self.dsn_file)


class ParquetSource(Section):
    """A Parquet file; a relative path starts at the folder of the configuration."""

    kind: Literal["parquet"]
    path: Path


Source = Annotated[PostgresSource | ParquetSource, Field(discriminator="kind")]

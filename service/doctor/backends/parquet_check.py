"""One dimension's Parquet file: its schema is read, and no row.

For tables of a database see `table_check`.
"""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from lookup_core.errors import BackendError
from service.config.dimension import DimensionConfig
from service.config.source import ParquetSource
from service.connectors.parquet.file import parquet_schema
from service.doctor.finding import Finding, Subject, trouble


@dataclass(frozen=True, slots=True)
class ParquetCheck:
    """The file of one dimension."""

    dimension: str
    config: DimensionConfig

    @property
    def matter(self) -> Subject:
        """The dimension's file."""
        return Subject("table", self.dimension)

    async def findings(self) -> AsyncGenerator[Finding, None]:
        """Whether it has the key and the columns."""
        source, config = self.config.source, self.config
        assert isinstance(source, ParquetSource)  # or there would be no such check
        try:
            # In a thread: a volume of the network may hang.
            await asyncio.to_thread(parquet_schema, source.path, config.key, columns=config.columns)
        except BackendError as error:
            yield trouble(self.matter, error)
        else:
            yield self.matter.ok(f"{source.path} has the key and the columns")

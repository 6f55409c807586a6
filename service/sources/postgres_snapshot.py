"""A PostgreSQL table as a bounded source: all of its rows as of one moment, in ranges.

Only what is made for whom: ranges are found by the enumerator, and read by readers of the snapshot
that it keeps. Later changes are other sources' business.
"""

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.sources.reading_mode import ReadingMode
from service.backends.postgres_settings import PostgresSettings
from service.sources.postgres_snapshot_enumerator import PostgresSnapshotEnumerator
from service.sources.postgres_snapshot_reader import PostgresSnapshotReader


class PostgresSnapshot:
    """Each reader has a connection of its own, beside those of lookups.

    Behind a PgBouncer that pools transactions it works, too: all is done within transactions. It
    needs as many server connections there as there are readers, and one more.
    """

    is_bounded = True
    reading_mode = ReadingMode.PARALLEL

    def __init__(self, settings: PostgresSettings, *, page_bytes: int = 2**20) -> None:
        self._settings = settings
        self._page_bytes = page_bytes  # of the table: what comes, and is taken, at once

    def enumerator(self, schema: DimensionSchema) -> PostgresSnapshotEnumerator:
        """Takes the snapshot when it is opened, and keeps it until it is closed."""
        return PostgresSnapshotEnumerator(self._settings, schema, page_bytes=self._page_bytes)

    def reader(self, schema: DimensionSchema) -> PostgresSnapshotReader:
        """Reads splits of an enumerator that is open, one after the other."""
        del schema  # splits bring what was compared with it
        return PostgresSnapshotReader(self._settings)

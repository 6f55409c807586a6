"""What a table is as a source; what is read is shown by a real server."""

from lookup_core.sources.splits import ReadingMode
from service.connectors.postgres.snapshot_source import PostgresSnapshot
from tests.service.sources.snapshot_tables import NOWHERE, PRICES


def test_table_is_read_in_parallel() -> None:
    """It is bounded, and several readers work at a time; nothing is opened yet."""
    source = PostgresSnapshot(NOWHERE)

    assert (source.is_bounded, source.reading_mode) == (True, ReadingMode.PARALLEL)
    assert source.enumerator(PRICES.schema).discovery_interval_s is None
    assert source.reader(PRICES.schema) is not source.reader(PRICES.schema)

"""What rows are read from."""

import pyarrow as pa

from lookup_core.cache.cached_answers import KeptRows
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.settings import CacheSettings
from lookup_core.table.full_table import FullTable


def test_caches_and_tables_keep_rows() -> None:
    """Whoever answers need not know which of both it is."""
    schema = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
    kept: list[KeptRows] = [RowCache(schema, CacheSettings()), FullTable(schema, CacheSettings())]

    found = [each.rows(pa.array([], pa.int32()).to_numpy(), ["name"]) for each in kept]

    assert [gathered.rows.num_rows for gathered in found] == [0, 0]

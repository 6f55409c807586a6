"""Keys with several rows and with versions in a PostgreSQL table, through a sidecar."""

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa

from spark_client.lookup_settings import JoinKeys, KeyColumn, LookupSettings, PassSettings
from spark_client.transport.connections import SidecarAddress
from spark_client.worker.lookup_task import LookupJoinTask, LookupPass, LookupTarget
from spark_client.worker.output_columns import AddedPart
from tests.end_to_end.sidecars import url_of
from tests.integration.sidecars import postgres_sidecar
from tools.processes.postgres_server import Database

TYPES = {"days": "date", "local": "timestamp", "instants": "timestamptz"}
# Unordered, with both representations of no end, and with versions that are never valid.
VERSIONS = """
    ('N1', 'third', '2013-06-01', 'infinity', 3),
    ('N1', 'first', '-infinity', '2013-01-01', 1),
    ('N1', 'second', '2013-03-01', '2013-06-01', 2),
    ('N1', 'not yet', 'infinity', 'infinity', 5),
    ('N1', 'never', '2013-02-01', '-infinity', 6),
    ('N2', 'only', NULL, NULL, 4),
    ('N3', 'not yet', 'infinity', NULL, 7)
"""
TIMES = {  # {event time: the version of N1 that is valid}
    dt.datetime(2012, 12, 31, 23, 59, 59, tzinfo=dt.UTC): "first",
    dt.datetime(2013, 1, 1, tzinfo=dt.UTC): None,
    dt.datetime(2013, 3, 1, tzinfo=dt.UTC): "second",
    dt.datetime(2013, 5, 31, 23, tzinfo=dt.UTC): "second",
    dt.datetime(2013, 6, 1, tzinfo=dt.UTC): "third",
    dt.datetime(9999, 1, 1, tzinfo=dt.UTC): "third",
}


def test_version_of_the_time_is_found(folder: Path, database: Database) -> None:
    """Versions are selected in UTC for dates and timestamps, fetched and from the cache."""
    database.execute(f"ALTER DATABASE {database.name} SET timezone TO 'Asia/Tokyo'")
    dimensions: dict[str, Any] = {}
    for name, kind in TYPES.items():
        database.execute(
            f"CREATE TABLE {name} (tail text, name text, since {kind}, until {kind}, n int4)",
            f"SET timezone TO 'UTC'; INSERT INTO {name} VALUES {VERSIONS}",
            f"CREATE INDEX ON {name} (tail)",
        )
        versions = {"valid_from": "since", "valid_to": "until"}
        dimensions[name] = {"key": ["tail"], "versions": versions}
    columns = pa.schema({"name": pa.utf8(), "n": pa.int32()})
    keys, settings = JoinKeys(("tail",), ("tail",)), LookupSettings(as_of=1)
    times = pa.array(TIMES, pa.timestamp("us", "UTC"))
    records = pa.record_batch({"tail": ["N1"] * len(TIMES), "ts": times})

    with (sidecar := postgres_sidecar(folder, database.dsn(), dimensions)).running():
        found = {}
        for name in TYPES:
            address, part = SidecarAddress(url_of(sidecar)), AddedPart(columns)
            target = LookupTarget(address, name, keys, (KeyColumn(0),), settings, part)
            task = LookupJoinTask(LookupPass([target], PassSettings()))
            outputs = [next(iter(task(iter([records])))) for _ in range(2)]
            found[name] = [output.column("name").to_pylist() for output in outputs]

    assert found == dict.fromkeys(TYPES, [list(TIMES.values())] * 2)

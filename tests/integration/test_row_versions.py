"""Versions in a real sidecar over PostgreSQL: by time over a channel, and as lists by JSON.

What RowVersions and the pick of a version do by themselves stands in their own tests.
"""

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_client.lookup_settings import JoinKeys, LookupSettings
from spark_client.lookup_task import LookupJoinTask, LookupTarget
from spark_client.transport.connections import Address
from tests.end_to_end.sidecars import url_of
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarProcess

TYPES = {"days": "date", "local": "timestamp", "instants": "timestamptz"}
ENDS = {"valid_from": "since", "valid_to": "until"}
# Out of order, with both ways to say "for ever", and with what is valid at no time.
ROWS = """
    ('N1', 'third', '2013-06-01', 'infinity', 3),
    ('N1', 'first', '-infinity', '2013-01-01', 1),
    ('N1', 'second', '2013-03-01', '2013-06-01', 2),
    ('N1', 'not yet', 'infinity', 'infinity', 5),
    ('N1', 'never', '2013-02-01', '-infinity', 6),
    ('N2', 'only', NULL, NULL, 4),
    ('N3', 'not yet', 'infinity', NULL, 7)
"""
VERSIONS = ["first", "second", "third"]
SINCE = [None, "2013-03-01", "2013-06-01"]
TIMES = {  # {when: which version of N1 is valid}
    dt.datetime(2012, 12, 31, 23, 59, 59, tzinfo=dt.UTC): "first",
    dt.datetime(2013, 1, 1, tzinfo=dt.UTC): None,
    dt.datetime(2013, 3, 1, tzinfo=dt.UTC): "second",
    dt.datetime(2013, 5, 31, 23, tzinfo=dt.UTC): "second",
    dt.datetime(2013, 6, 1, tzinfo=dt.UTC): "third",
    dt.datetime(9999, 1, 1, tzinfo=dt.UTC): "third",
}


@pytest.fixture
def sidecar(tmp_path: Path, database: Database) -> Iterator[SidecarProcess]:
    """The same history in tables whose times are of different types, in a zone far from UTC."""
    database.execute(f"ALTER DATABASE {database.name} SET timezone TO 'Asia/Tokyo'")
    dimensions = {}
    for name, kind in TYPES.items():
        database.execute(
            f"CREATE TABLE {name} (tail text, name text, since {kind}, until {kind}, n int4)",
            "SET timezone TO 'UTC'; " + f"INSERT INTO {name} VALUES {ROWS}",
            f"CREATE INDEX ON {name} (tail)",
        )
        source = {"kind": "postgres", "dsn": database.dsn(), "table": name}
        dimensions[name] = {"source": source, "key": ["tail"], "versions": ENDS, "timeout": "10s"}
    path = tmp_path / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": dimensions}))  # which is YAML, too
    process = SidecarProcess(tmp_path, (*SERVE, "--config", str(path)))
    with process.running():
        yield process


@pytest.mark.parametrize("name", TYPES)
def test_version_of_the_time_is_found(sidecar: SidecarProcess, name: str) -> None:
    """Dates, and timestamps with and without a zone: all in UTC, fetched and from the cache."""
    columns = pa.schema({"name": pa.utf8(), "n": pa.int32()})
    keys, settings = JoinKeys(("tail",), ("tail",)), LookupSettings(as_of=1)
    target = LookupTarget(Address(url_of(sidecar)), name, columns, keys, (0,), settings)
    times = pa.array(TIMES, pa.timestamp("us", "UTC"))
    records = pa.record_batch({"tail": ["N1"] * len(TIMES), "ts": times})

    for _ in range(2):
        (output,) = LookupJoinTask(target, "", None)(iter([records]))
        assert output.column("name").to_pylist() == list(TIMES.values())


def test_json_has_all_versions(sidecar: SidecarProcess) -> None:
    """Without a time a row has the lists of all versions that are ever valid, oldest first."""
    answer = sidecar.post("/v1/dimensions/days/lookup", {"keys": ["N1", "N3", "N9"]}).json()

    until = ["2013-01-01", "2013-06-01", None]
    row = {"name": VERSIONS, "since": SINCE, "until": until, "n": [1, 2, 3]}
    assert answer["rows"] == [row, None, None]

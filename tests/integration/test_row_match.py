"""Keys with several rows in a real sidecar: by JSON, as Arrow and over a channel, from each source.

Invoices of two customers; what RowMatch does by itself stands in its own tests.
"""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from spark_client.transport.connections import Address, Connections
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarProcess, clean_environ, free_port

PATIENCE_S = 10.0
INVOICES = pa.table(
    {
        "customer": pa.array([7, 8, 7, 7], pa.int64()),
        "number": pa.array([30, 20, 10, 40], pa.int64()),
        "paid": ["2013-01-02", None, None, "2013-01-03"],
    }
)
ALL = {"number": [10, 30, 40], "paid": [None, "2013-01-02", "2013-01-03"]}
FIRST = {"number": 10, "paid": None}
KEYS = {"keys": [7, 9, 8, 7]}


@contextmanager
def sidecar(folder: Path, sources: Mapping[str, Mapping[str, Any]]) -> Iterator[SidecarProcess]:
    """One with two dimensions from each source, `<source>_all` and `<source>_first`."""
    dimensions = {
        f"{name}_{match}": {"source": source, "key": ["customer"], "match": match, "timeout": "10s"}
        for name, source in sources.items()
        for match in ("all", "first")
    }
    http_port = free_port()
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": dimensions}))  # which is YAML, too
    environ = {**clean_environ(), "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{http_port}"}
    process = SidecarProcess(folder, (*SERVE, "--config", str(path)), environ=environ)
    with process.running():
        yield process


@pytest.fixture
def invoices(tmp_path: Path, database: Database) -> Iterator[SidecarProcess]:
    """The invoices in a Parquet file, where they are sorted, and in a table, where they are not."""
    pq.write_table(INVOICES.sort_by("number"), tmp_path / "invoices.parquet")
    database.execute(
        "CREATE TABLE invoices (customer int8, number int8 PRIMARY KEY, paid date)",
        "CREATE INDEX ON invoices (customer)",
    )
    database.insert("invoices", [list(row.values()) for row in INVOICES.to_pylist()])
    sources = {
        "file": {"kind": "parquet", "path": str(tmp_path / "invoices.parquet")},
        "table": {"kind": "postgres", "dsn": database.dsn(), "table": "invoices"},
    }
    with sidecar(tmp_path, sources) as process:
        yield process


@pytest.mark.parametrize("source", ["file", "table"])
def test_json_has_lists(invoices: SidecarProcess, source: str) -> None:
    """Columns are lists of equal length, fetched and from the cache; a date is a text as ever."""
    path = f"/v1/dimensions/{source}_all/lookup"

    fetched, cached = (invoices.post(path, KEYS).json() for _ in range(2))

    expected = [ALL, None, {"number": [20], "paid": [None]}, ALL]
    assert fetched["rows"] == cached["rows"] == expected
    assert fetched["outcomes"] == ["fetched", "missing", "fetched", "fetched"]
    assert cached["outcomes"] == ["hit", "missing", "hit", "hit"]


@pytest.mark.parametrize("source", ["file", "table"])
def test_first_row_is_a_row(invoices: SidecarProcess, source: str) -> None:
    """The first in the order of the file, or of the primary key; no list around it."""
    answer = invoices.post(f"/v1/dimensions/{source}_first/lookup", KEYS).json()

    assert answer["rows"] == [FIRST, None, {"number": 20, "paid": None}, FIRST]


def test_catalogue_names_lists(invoices: SidecarProcess) -> None:
    """Whoever asks what columns there are sees that they are lists."""
    columns = invoices.get("/v1/dimensions/table_all").json()["columns"]

    assert [each["type"] for each in columns] == ["list<item: int64>", "list<item: date32[day]>"]


def test_arrow_has_lists(invoices: SidecarProcess) -> None:
    """As Arrow the columns are lists, null where there is no row."""
    table = arrow_answer(invoices, "table_all", pa.record_batch({"customer": [8, 9]}))

    assert table.schema.field("number").type == pa.list_(pa.int64())
    assert table["number"].to_pylist() == [[20], None]


@pytest.mark.parametrize("source", ["file", "table"])
def test_channel_has_lists(invoices: SidecarProcess, source: str) -> None:
    """Over a channel, as Spark's tasks ask, lists arrive in the types that were announced."""
    key = pa.schema({"customer": pa.int64()})
    request = ChannelRequest(f"{source}_all", ("number",), "a test", key)
    session = Connections().to(Address(f"unix://{invoices.socket}")).open(request)

    keys = pa.record_batch([pa.array([7, 8], pa.int64())], schema=key)
    session.look_up(SentKeys(QuestionId(1), keys, time.monotonic() + PATIENCE_S))
    answers = [each.answer for each in session.answers(PATIENCE_S)]
    session.close()

    assert session.columns == pa.schema({"number": pa.list_(pa.int64())})
    (rows,) = [each.rows for each in answers]
    assert rows is not None
    assert sorted(rows["number"].to_pylist()) == [[10, 30, 40], [20]]


def arrow_answer(sidecar: SidecarProcess, dimension: str, keys: pa.RecordBatch) -> pa.Table:
    """The answer to keys that are sent as Arrow, as the tables of data frames are."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, keys.schema) as writer:
        writer.write_batch(keys)
    kind = "application/vnd.apache.arrow.stream"
    address = sidecar.environ["SIDELOOK_LISTEN__HTTP"]
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request(
        "POST",
        f"/v1/dimensions/{dimension}/lookup",
        body=sink.getvalue().to_pybytes(),
        headers={"Content-Type": kind, "Accept": kind},
    )
    response = connection.getresponse()
    content = response.read()
    connection.close()
    assert response.status == 200, content
    return pa.ipc.open_stream(content).read_all()

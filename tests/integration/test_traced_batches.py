"""One query of a real table for several callers: which spans there are, and how they are linked."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import QuestionId, SentKeys
from lookup_core.protocol.trace_parent import TraceParent
from spark_client.transport.connections import Address, Connections
from tests.otlp_collector import OtlpCollector, attributes, otlp_collector
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarProcess, clean_environ

PATIENCE_S = 10.0
KEY = pa.schema({"id": pa.int64()})
TRACES = {7: "a" * 32, 8: "b" * 32, 9: "c" * 32}  # {key: the trace of who asks for it}
# Three keys make a batch, however long it takes until all of them are here.
BATCH = {"max_keys": 3, "linger": "8s", "max_in_flight": 1}


def traceparent(key: int) -> str:
    """The trace of who asks for this key, which is followed."""
    return f"00-{TRACES[key]}-{'d' * 16}-01"


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    """Who gets the spans."""
    with otlp_collector() as made:
        yield made


@pytest.fixture
def sidecar(tmp_path: Path, database: Database, collector: OtlpCollector) -> SidecarProcess:
    """Customers in a table; only those who say so are followed."""
    database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text)")
    database.insert("customers", [(7, "Ada"), (8, "Bert"), (9, "Cleo")])
    source = {"kind": "postgres", "dsn": database.dsn(), "table": "public.customers"}
    customers = {"source": source, "key": ["id"], "batch": BATCH, "timeout": "10s"}
    path = tmp_path / "sidelook.yaml"
    tracing = {"endpoint": collector.url, "sample_ratio": 0}
    path.write_text(json.dumps({"tracing": tracing, "dimensions": {"customers": customers}}))
    return SidecarProcess(tmp_path, (*SERVE, "--config", str(path)), environ=clean_environ())


def ask_by_http(sidecar: SidecarProcess, key: int) -> list[str]:
    """The outcome of one key, for its trace."""
    body = {"keys": [key]}
    headers = {"traceparent": traceparent(key)}
    path = "/v1/dimensions/customers/lookup"
    reply = sidecar.post(path, body, headers=headers)
    outcomes: list[str] = reply.json()["outcomes"]
    return outcomes


def ask_by_stream(sidecar: SidecarProcess, key: int) -> list[str]:
    """The same over a channel, as Spark's tasks ask."""
    trace = TraceParent(traceparent(key))
    request = ChannelRequest("customers", ("name",), "a test", KEY, trace=trace)
    session = Connections().to(Address(f"unix://{sidecar.socket}")).open(request)
    keys = pa.record_batch([pa.array([key], pa.int64())], schema=KEY)
    session.look_up(SentKeys(QuestionId(1), keys, time.monotonic() + PATIENCE_S))
    (answer,) = session.answers(PATIENCE_S)
    session.close()
    return ["fetched" if answer.answer.rows is not None else "none"]


def links(span: Span) -> set[str]:
    """Which traces a span is linked to."""
    return {link.trace_id.hex() for link in span.links}


def test_query_is_linked_to_all_whom_it_serves(
    sidecar: SidecarProcess, collector: OtlpCollector
) -> None:
    """Two requests and a LOOKUP whose keys meet make one span of the database with three links."""
    with sidecar.running(), ThreadPoolExecutor() as callers:
        asking = [callers.submit(ask_by_http, sidecar, key) for key in (7, 8)]
        asking.append(callers.submit(ask_by_stream, sidecar, 9))
        assert [each.result() for each in asking] == [["fetched"]] * 3

    askers = [span for span in collector.spans() if span.kind == Span.SPAN_KIND_SERVER]
    (query,) = (span for span in collector.spans() if span.kind == Span.SPAN_KIND_CLIENT)
    assert {span.trace_id.hex() for span in askers} == links(query) == set(TRACES.values())
    assert {link.span_id for link in query.links} == {span.span_id for span in askers}
    assert (query.name, attributes(query.attributes)["db.operation.batch.size"]) == (
        "SELECT public.customers",
        3,
    )


def test_failed_query_tells_no_word_of_the_database(
    sidecar: SidecarProcess, database: Database, collector: OtlpCollector
) -> None:
    """What it says may hold a key; the span has our code, on every try."""
    with sidecar.running():
        database.execute("DROP TABLE customers")
        reply = sidecar.post(
            "/v1/dimensions/customers/lookup",
            {"keys": [7, 8, 9], "timeout_ms": 5_000},
            headers={"traceparent": traceparent(7)},
        )

    tries = [span for span in collector.spans() if span.kind == Span.SPAN_KIND_CLIENT]
    assert {span.status.code for span in tries} == {Status.STATUS_CODE_ERROR}
    assert {span.status.message for span in tries} <= {"schema_changed", "table_unavailable"}
    assert "error" in reply.text

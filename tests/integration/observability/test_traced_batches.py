"""Spans of a query that serves several callers, from a sidecar to a collector."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.frames import TraceParent
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connections import Connections, SidecarAddress
from tests.integration.sidecars import postgres_sidecar
from tests.otlp_collector import OtlpCollector, attributes, otlp_collector
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarProcess

PATIENCE_S = 10.0
LOOKUP = "/v1/dimensions/customers/lookup"
KEY = pa.schema({"id": pa.int64()})
TRACES = {7: "a" * 32, 8: "b" * 32, 9: "c" * 32}  # {key: trace of its caller}
# Three keys make a query, whenever they arrive.
BATCH = {"max_keys": 3, "linger": "8s", "max_in_flight": 1}


def traceparent(key: int) -> str:
    """The sampled trace of the key's caller."""
    return f"00-{TRACES[key]}-{'d' * 16}-01"


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    """The receiver of the spans."""
    with otlp_collector() as made:
        yield made


@pytest.fixture
def sidecar(folder: Path, database: Database, collector: OtlpCollector) -> SidecarProcess:
    """A sidecar that traces sampled callers only; it is not started."""
    database.execute("CREATE TABLE customers (id int8 PRIMARY KEY, name text)")
    database.insert("customers", [(7, "Ada"), (8, "Bert"), (9, "Cleo")])
    customers = {"batch": BATCH, "timeout": "10s"}
    tracing = {"endpoint": collector.url, "sample_ratio": 0}
    return postgres_sidecar(folder, database.dsn(), {"customers": customers}, tracing=tracing)


def look_up_by_http(sidecar: SidecarProcess, key: int) -> bool:
    """Whether an HTTP request of the key's trace finds the row."""
    reply = sidecar.post(LOOKUP, {"keys": [key]}, headers={"traceparent": traceparent(key)})
    return bool(reply.json()["outcomes"] == ["fetched"])


def look_up_by_stream(sidecar: SidecarProcess, key: int) -> bool:
    """Whether a LOOKUP of the key's trace finds the row."""
    trace = TraceParent(traceparent(key))
    request = ChannelRequest("customers", ("name",), "a test", KEY, trace=trace)
    session = Connections().to(SidecarAddress(f"unix://{sidecar.socket}")).open(request)
    keys = pa.record_batch([pa.array([key], pa.int64())], schema=KEY)
    session.look_up(SentKeys(RunId(1), keys, time.monotonic() + PATIENCE_S))
    (answer,) = session.answers(PATIENCE_S)
    session.close()
    return answer.answer.rows is not None


def test_query_is_linked_to_all_its_callers(
    sidecar: SidecarProcess, collector: OtlpCollector
) -> None:
    """Two requests and a LOOKUP in one query give one database span with three links."""
    with sidecar.running(), ThreadPoolExecutor() as pool:
        found = [pool.submit(look_up_by_http, sidecar, key) for key in (7, 8)]
        found.append(pool.submit(look_up_by_stream, sidecar, 9))
        assert [each.result() for each in found] == [True] * 3

    callers = [span for span in collector.spans() if span.kind == Span.SPAN_KIND_SERVER]
    (query,) = (span for span in collector.spans() if span.kind == Span.SPAN_KIND_CLIENT)
    assert {span.trace_id.hex() for span in callers} == set(TRACES.values())
    assert {link.trace_id.hex() for link in query.links} == set(TRACES.values())
    assert {link.span_id for link in query.links} == {span.span_id for span in callers}
    size = attributes(query.attributes)["db.operation.batch.size"]
    assert (query.name, size) == ("SELECT customers", 3)

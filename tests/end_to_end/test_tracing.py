"""Tracing of a sidecar process: the spans of a Spark job, and no imports without tracing."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pyspark.sql import SparkSession

from spark_client import Sidecar
from tests.end_to_end.sidecars import customers_sidecar, ended, url_of
from tests.otlp_collector import otlp_collector
from tools.processes.sidecar_process import SidecarProcess, free_port
from tools.processes.until import until

TRACE = "a" * 32


@pytest.fixture
def sidecar(tmp_path: Path) -> SidecarProcess:
    """A sidecar without tracing, not started."""
    return customers_sidecar(tmp_path)


def tracing(sidecar: SidecarProcess, url: str) -> SidecarProcess:
    """The same sidecar with this address for its spans."""
    wanted = {"ENDPOINT": url, "SAMPLE_RATIO": "0"}
    environ = {f"SIDELOOK_TRACING__{name}": text for name, text in wanted.items()}
    return replace(sidecar, environ={**sidecar.environ, **environ})


def test_spans_of_a_job_are_in_its_trace(
    sidecar: SidecarProcess, spark_session: SparkSession
) -> None:
    """The property `traceparent` of a Spark job is the parent of all of its lookups."""
    context, records = spark_session.sparkContext, spark_session.range(300).repartition(2)
    with otlp_collector() as collector, tracing(sidecar, collector.url).running():
        join = Sidecar(url_of(sidecar)).lookup_join("customers", on="id", columns=["name"])
        context.setLocalProperty("traceparent", f"00-{TRACE}-{'b' * 16}-01")
        try:
            assert records.transform(join).count() == 300
        finally:
            context.setLocalProperty("traceparent", None)  # type: ignore[arg-type]
        assert records.transform(join).count() == 300  # without a trace
        until(collector.spans)

    lookups = [each for each in collector.spans() if each.kind == Span.SPAN_KIND_SERVER]
    assert {span.trace_id.hex() for span in lookups} == {TRACE}


@pytest.mark.parametrize("is_on", [False, True])
def test_nothing_is_imported_unless_it_traces(sidecar: SidecarProcess, *, is_on: bool) -> None:
    """A sidecar without tracing does not import OpenTelemetry."""
    logging = replace(sidecar, command=(sys.executable, "-X", "importtime", *sidecar.command[1:]))
    if is_on:
        logging = tracing(logging, f"http://127.0.0.1:{free_port()}")
    with logging.running():
        pass

    assert ("opentelemetry" in (sidecar.folder / "log").read_text()) is is_on


def test_missing_package_stops_the_start(sidecar: SidecarProcess) -> None:
    """Without the extra `tracing` the process exits with 78 and names the package."""
    hidden = "import sys; sys.modules['opentelemetry'] = None"
    start = f"{hidden}; from service.commands.application import run; sys.exit(run(sys.argv[1:]))"
    arguments = sidecar.command[sidecar.command.index("serve") :]
    environ = tracing(sidecar, "http://127.0.0.1:4318").whole_environ

    refused = ended((sys.executable, "-c", start, *arguments), environ)

    assert refused.returncode == 78
    assert "pip install 'sidelook-service[tracing]'" in refused.stderr

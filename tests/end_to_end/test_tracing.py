"""A sidecar that is traced: what a collector gets of it, and what it costs where there is none."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pyspark.sql import SparkSession

from spark_client import Sidecar
from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar, url_of
from tests.otlp_collector import OtlpCollector, attributes, otlp_collector
from tools.processes.sidecar_process import SidecarProcess, free_port
from tools.processes.until import until

TRACE = "a" * 32
TRACEPARENT = f"00-{TRACE}-{'b' * 16}-01"
LOOKUP = "/v1/dimensions/customers/lookup"
STOP_S = 10.0  # two for the last spans; the others for the machine


@pytest.fixture
def sidecar(tmp_path: Path) -> SidecarProcess:
    """One that does not run yet, and traces nothing."""
    return stopped_parquet_sidecar(tmp_path)


@pytest.fixture
def collector() -> Iterator[OtlpCollector]:
    """Who gets the spans."""
    with otlp_collector() as made:
        yield made


def tracing(sidecar: SidecarProcess, url: str, **settings: str) -> SidecarProcess:
    """The same one, whose spans go to this address."""
    wanted = {"ENDPOINT": url, "SAMPLE_RATIO": "0"} | settings
    environ = {f"SIDELOOK_TRACING__{name}": text for name, text in wanted.items()}
    return replace(sidecar, environ={**sidecar.environ, **environ})


@contextmanager
def local_properties(session: SparkSession, properties: Mapping[str, str]) -> Iterator[None]:
    """Of the jobs in the block."""
    for name, text in properties.items():
        session.sparkContext.setLocalProperty(name, text)
    try:
        yield
    finally:
        for name in properties:
            session.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_spans_of_a_job_are_in_its_trace(
    sidecar: SidecarProcess, collector: OtlpCollector, spark_session: SparkSession
) -> None:
    """The property `traceparent` of a Spark job is the parent of all its LOOKUPs."""
    with tracing(sidecar, collector.url).running():
        join = Sidecar(url_of(sidecar)).lookup_join("customers", on="id", columns=["name"])
        records = spark_session.range(300).repartition(2)
        with local_properties(spark_session, {"traceparent": TRACEPARENT}):
            assert records.transform(join).count() == 300
        assert records.transform(join).count() == 300  # of no trace
        until(lambda: _told_keys(collector) >= 300)  # the end waits for the last ones only so long

    assert {span.trace_id.hex() for span in _lookups(collector)} == {TRACE}
    assert _told_keys(collector) == 300


def _lookups(collector: OtlpCollector) -> list[Span]:
    # By their identities: what was not confirmed in time is sent again.
    spans = {each.span_id: each for each in collector.spans()}
    return [each for each in spans.values() if each.kind == Span.SPAN_KIND_SERVER]


def _told_keys(collector: OtlpCollector) -> int:
    keys = [attributes(span.attributes)["sidelook.keys"] for span in _lookups(collector)]
    return sum(map(int, map(str, keys)))


def test_collector_that_goes_harms_no_lookup(
    sidecar: SidecarProcess, collector: OtlpCollector
) -> None:
    """Answers go on as before, the log says it once, and the end is quick."""
    gone = f"http://127.0.0.1:{free_port()}"
    with tracing(sidecar, gone, SAMPLE_RATIO="1").running() as process:
        for _ in range(3):
            assert sidecar.post(LOOKUP, {"keys": [1]}).status == 200
        log = sidecar.folder / "log"
        until(lambda: "tracing.not_sent" in log.read_text())
        process.terminate()
        took_s = until(lambda: process.poll() is not None)

    assert (process.returncode, collector.messages) == (0, [])
    assert took_s < STOP_S
    assert log.read_text().count("tracing.not_sent") <= 2  # of the sender, and of what it sends by


@pytest.mark.parametrize("is_on", [False, True])
def test_nothing_is_imported_unless_it_traces(sidecar: SidecarProcess, *, is_on: bool) -> None:
    """Who does not trace pays for it neither in memory nor at the start."""
    telling = replace(sidecar, command=(sys.executable, "-X", "importtime", *sidecar.command[1:]))
    if is_on:
        telling = tracing(telling, f"http://127.0.0.1:{free_port()}")
    with telling.running():
        assert sidecar.post(LOOKUP, {"keys": [1]}).status == 200

    assert ("opentelemetry" in (sidecar.folder / "log").read_text()) is is_on


def test_missing_package_is_told_with_its_remedy(sidecar: SidecarProcess) -> None:
    """An installation without the extra refuses to trace, and says what to install."""
    hidden = "import sys; sys.modules['opentelemetry'] = None"
    start = f"{hidden}; from service.commands.application import run; sys.exit(run(sys.argv[1:]))"
    arguments = sidecar.command[sidecar.command.index("serve") :]
    ended = subprocess.run(
        (sys.executable, "-c", start, *arguments),
        cwd=sidecar.code,
        env=tracing(sidecar, "http://127.0.0.1:4318").whole_environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "pip install 'sidelook[tracing]'" in ended.stderr

"""A real Prometheus scrapes a real sidecar under load: each expression there is finds its data."""

import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.end_to_end import busy_streams
from tests.end_to_end.parquet_sidecar import url_of
from tests.end_to_end.prometheus_process import PrometheusProcess
from tests.integration.trigger_messages import CHANNEL, make_triggers
from tests.monitoring.expressions import dashboard_expressions
from tests.monitoring.rule_file import alerts, plain_rules, records, rules
from tests.service.tls.certificates import authority
from tools.processes.postgres_server import PostgresServer, running_postgres
from tools.processes.sidecar_process import ROOT, SERVE, SidecarProcess, clean_environ, free_port
from tools.processes.until import until

WINDOW = "10s"  # instead of minutes, as the sidecar is scraped each second
LABELS = {"namespace": "etl", "pod": "enrich-exec-1"}
ROWS = 4_000
DATA_WITHIN_S = 60.0
TABLES = ("customers", "orders")  # in PostgreSQL: one followed, one that expires
DIMENSIONS = (*TABLES, "airports")  # a Parquet file, held whole


@dataclass(frozen=True, slots=True)
class Watched:
    """A sidecar that is asked all the time, and the Prometheus that scrapes it."""

    sidecar: SidecarProcess
    prometheus: PrometheusProcess
    server: PostgresServer


@pytest.fixture(scope="module")
def watched() -> Iterator[Watched]:
    """Both, with the rules in seconds instead of minutes."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: sockets have short paths
    with running_postgres() as server:
        sidecar = sidecar_of(folder, server)
        with sidecar.running():
            targets = {sidecar.health_port: LABELS}
            prometheus = PrometheusProcess(folder, targets, in_seconds(plain_rules()))
            with asked(sidecar), prometheus.running():
                yield Watched(sidecar, prometheus, server)
    shutil.rmtree(folder, ignore_errors=True)


def sidecar_of(folder: Path, server: PostgresServer) -> SidecarProcess:
    """One with tables of all kinds, and a certificate."""
    database = server.new_database()
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id int8 PRIMARY KEY, name text)",
            f"INSERT INTO {table} SELECT id, 'row ' || id FROM generate_series(1, {ROWS}) AS id",
        )
    make_triggers(database, "customers", ["id"])
    rows = {"id": pa.array(range(ROWS), pa.int64()), "name": ["row"] * ROWS}
    pq.write_table(pa.table(rows), folder / "airports.parquet")
    (folder / "sidelook.yaml").write_text(json.dumps(configuration(database.dsn())))
    authority(folder).issue()
    environ = {**clean_environ(), "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{free_port()}"}
    return SidecarProcess(folder, [*SERVE, "--config", str(folder / "sidelook.yaml")], environ)


def configuration(dsn: str) -> dict[str, Any]:
    """Its settings, which are YAML, too."""
    source = {"kind": "postgres", "dsn": dsn}
    # The timeout is for who asks by hand; the streams have one of their own.
    followed = {
        "timeout": "20s",
        "cache": {"ttl": "1h"},
        "refresh": {"listen": {"channel": CHANNEL}},
    }
    expiring = {"cache": {"ttl": "2s", "ttl_jitter": 0.5}}
    held = {"cache": {"mode": "full"}, "refresh": {"reload": {"every": "1h"}}}
    return {
        "listen": {"tls": {"cert_file": "tls.crt", "key_file": "tls.key"}},
        "dimensions": {
            "customers": {"source": {**source, "table": "customers"}, "key": ["id"], **followed},
            "orders": {"source": {**source, "table": "orders"}, "key": ["id"], **expiring},
            "airports": {
                "source": {"kind": "parquet", "path": "airports.parquet"},
                "key": ["id"],
                **held,
            },
        },
    }


def in_seconds(plain: str) -> str:
    """The same rules, for a history of seconds."""
    brief = re.sub(r"\[\dm\]", f"[{WINDOW}]", plain)
    return re.sub(r"for: \d+m", "for: 2s", brief)


@contextmanager
def asked(sidecar: SidecarProcess) -> Iterator[None]:
    """Streams ask for keys of all dimensions meanwhile."""
    command = [sys.executable, busy_streams.__file__, url_of(sidecar), *DIMENSIONS]
    process = subprocess.Popen(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    try:
        yield
        assert process.poll() is None, "the client has ended"
    finally:
        process.kill()
        process.wait()


def without_data(prometheus: PrometheusProcess, expressions: Sequence[str]) -> list[str]:
    """Those that find no number at all; AssertionError if one is not understood."""
    return [each for each in expressions if not any(map(math.isfinite, prometheus.values(each)))]


def check_data(prometheus: PrometheusProcess, expressions: Sequence[str]) -> None:
    """Each has data as soon as there were scrapes enough, and it is told which have none."""
    left = list(expressions)

    def have_all_data() -> bool:
        left[:] = without_data(prometheus, left)
        return not left

    try:
        until(have_all_data, within_s=DATA_WITHIN_S)
    except AssertionError:
        pytest.fail("no data:\n" + "\n".join(left))


@pytest.mark.real_path
def test_every_panel_has_data(watched: Watched) -> None:
    """No panel of the dashboard is empty for a sidecar that does all there is to do."""
    check_data(watched.prometheus, dashboard_expressions(rate_window=WINDOW))


def test_every_record_has_data(watched: Watched) -> None:
    """What is recorded is there under its name, and as the expression in the file."""
    named = [rule.name for rule in records()]

    check_data(watched.prometheus, named + [rule.expression for rule in records()])


@pytest.mark.real_path
def test_every_alert_has_data(watched: Watched) -> None:
    """What an alert compares has a value while nothing is wrong; the comparison is understood."""
    check_data(watched.prometheus, [alert.value for alert in alerts()])

    for alert in alerts():
        watched.prometheus.values(alert.expression)


def test_no_data_is_noticed(watched: Watched) -> None:
    """The check can fail: an expression that names nothing is told."""
    absent = "sum(rate(sidelook_nothing_total[1m]))"

    assert without_data(watched.prometheus, ["up", absent]) == [absent]


def test_every_rule_is_evaluated(watched: Watched) -> None:
    """Prometheus itself has no complaint of any rule."""
    prometheus = watched.prometheus
    until(lambda: "unknown" not in prometheus.rule_health().values())

    assert prometheus.rule_health() == dict.fromkeys([rule.name for rule in rules()], "ok")


@pytest.mark.parametrize("command", ["lookup customers 42", "explain customers 42", "status"])
def test_commands_of_runbooks_answer(command: str, watched: Watched) -> None:
    """As the pages have them; a person at night has no time for a command that has changed."""
    pages = (ROOT / "docs" / "runbooks").glob("*.md")
    endpoint = ["--endpoint", url_of(watched.sidecar)]
    asked = [sys.executable, "-m", "service", *command.split(), *endpoint]

    answered = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)

    assert any(f"python -m service {command}\n" in page.read_text() for page in pages)
    assert (answered.returncode, answered.stderr) == (0, "")


def test_stopped_database_is_told(watched: Watched) -> None:
    """Healthy, nothing is told; then failing lookups wake somebody, and the breaker says why."""
    prometheus = watched.prometheus
    expected = {("SidelookLookupErrors", "critical"), ("SidelookBreakerOpen", "warning")}
    until(lambda: prometheus.firing() == set())

    watched.server.crash()

    until(lambda: expected <= prometheus.firing())
    assert prometheus.values("max(sidelook_breaker_state)") != [0]

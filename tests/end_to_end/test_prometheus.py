"""A real Prometheus scrapes a sidecar under load: each expression has data."""

import math
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from tests.end_to_end.prometheus_process import PrometheusProcess
from tests.end_to_end.sidecars import configured, ended, parquet, postgres, running_load, url_of
from tests.integration.notifications.trigger_messages import CHANNEL, make_triggers
from tests.monitoring.expressions import dashboard_expressions
from tests.monitoring.rule_file import (
    alerts,
    prometheus_program,
    promtool,
    records,
    rules,
)
from tests.service.tls.certificates import authority
from tools.processes.postgres_server import PostgresServer, running_postgres
from tools.processes.sidecar_process import ROOT, SidecarProcess, free_port
from tools.processes.until import until
from tools.reference.pages import plain_rules

WINDOW = "10s"  # instead of minutes, as the sidecar is scraped each second
LABELS = {"namespace": "etl", "pod": "enrich-exec-1"}
ROWS = 4_000
DATA_WITHIN_S = 60.0
TABLES = ("customers", "orders")  # in PostgreSQL
DIMENSIONS = (*TABLES, "airports")


@dataclass(frozen=True, slots=True)
class Watched:
    """A sidecar under load, and the Prometheus that scrapes it."""

    sidecar: SidecarProcess
    prometheus: PrometheusProcess
    server: PostgresServer


@pytest.fixture(scope="module")
def watched(module_folder: Path) -> Iterator[Watched]:
    """Both, with rules in seconds instead of minutes."""
    with running_postgres() as server:
        sidecar = sidecar_of(module_folder, server)
        targets = {sidecar.health_port: LABELS}
        program, brief = prometheus_program("prometheus"), in_seconds(plain_rules())
        prometheus = PrometheusProcess(program, module_folder, targets, brief)
        load = ("tests.end_to_end.busy_streams", url_of(sidecar), *DIMENSIONS)
        with sidecar.running(), running_load(*load), prometheus.running():
            yield Watched(sidecar, prometheus, server)


def sidecar_of(folder: Path, server: PostgresServer) -> SidecarProcess:
    """A sidecar with a followed, an expiring and a full dimension, and a certificate."""
    database = server.new_database()
    for table in TABLES:
        database.execute(
            f"CREATE TABLE {table} (id int8 PRIMARY KEY, name text)",
            f"INSERT INTO {table} SELECT id, 'row ' || id FROM generate_series(1, {ROWS}) AS id",
        )
    make_triggers(database, "customers", ["id"])
    authority(folder).issue()
    rows = pa.table({"id": pa.array(range(ROWS), pa.int64()), "name": ["row"] * ROWS})
    customers, orders = (postgres(database.dsn(), table) for table in TABLES)
    listen, reload = {"listen": {"channel": CHANNEL}}, {"reload": {"every": "1h"}}
    dimensions = {
        # The timeout is that of the commands; the streams have one of their own.
        "customers": {**customers, "timeout": "20s", "cache": {"ttl": "1h"}, "refresh": listen},
        "orders": {**orders, "cache": {"ttl": "2s", "ttl_jitter": 0.5}},
        "airports": parquet(
            *(folder, "airports", rows, "id"), cache={"mode": "full"}, refresh=reload
        ),
    }
    environ = {"SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{free_port()}"}
    tls = {"tls": {"cert_file": "tls.crt", "key_file": "tls.key"}}
    return configured(folder, dimensions, environ=environ, listen=tls)


def in_seconds(plain: str) -> str:
    """The rules for a history of seconds."""
    brief = re.sub(r"\[\dm\]", f"[{WINDOW}]", plain)
    return re.sub(r"for: \d+m", "for: 2s", brief)


def without_data(prometheus: PrometheusProcess, expressions: Sequence[str]) -> list[str]:
    """The expressions without a finite value; raises AssertionError for an invalid one."""
    return [each for each in expressions if not any(map(math.isfinite, prometheus.values(each)))]


@pytest.mark.real_path
@pytest.mark.parametrize(
    "expressions",
    [
        dashboard_expressions(rate_window=WINDOW),
        [text for rule in records() for text in (rule.name, rule.expression)],
        [alert.value for alert in alerts()],
    ],
    ids=["panels", "records", "alerts"],
)
def test_every_expression_has_data(watched: Watched, expressions: Sequence[str]) -> None:
    """Panels, recording rules and values of alerts have data for all kinds of dimensions."""
    left = list(expressions)

    def have_all_data() -> bool:
        left[:] = without_data(watched.prometheus, left)
        return not left

    try:
        until(have_all_data, within_s=DATA_WITHIN_S)
    except AssertionError:
        pytest.fail("no data:\n" + "\n".join(left))


@pytest.mark.real_path
def test_metrics_pass_promtool(watched: Watched) -> None:
    """`/metrics` has no finding of promtool, and has the same names through the socket."""
    scraped = watched.sidecar.health("/metrics").text

    checked = promtool("check", "metrics", text=scraped)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert 'sidelook_dimension_loads_total{dimension="airports",result="ok"}' in scraped
    names = [
        {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        for text in (scraped, watched.sidecar.get("/metrics").text)
    ]
    assert names[0] == names[1]


def test_every_rule_is_evaluated(watched: Watched) -> None:
    """Prometheus evaluates each rule without an error."""
    prometheus = watched.prometheus
    until(lambda: "unknown" not in prometheus.rule_health().values())

    assert prometheus.rule_health() == dict.fromkeys([rule.name for rule in rules()], "ok")


@pytest.mark.parametrize("command", ["lookup customers 42", "explain customers 42", "status"])
def test_commands_of_runbooks_answer(command: str, watched: Watched) -> None:
    """The commands of the runbooks succeed as written."""
    pages = (ROOT / "docs" / "runbooks").glob("*.md")
    endpoint = ["--endpoint", url_of(watched.sidecar)]
    program = [sys.executable, "-m", "service", *command.split(), *endpoint]

    answered = ended(program)

    written = re.compile(rf"^kubectl exec POD -c sidelook -- sidelook {command}$", re.MULTILINE)
    assert any(written.search(page.read_text()) for page in pages)
    assert (answered.returncode, answered.stderr) == (0, "")


def test_stopped_database_fires_alerts(watched: Watched) -> None:
    """Without a fault no alert fires; without a database failing lookups and the breaker do."""
    prometheus = watched.prometheus
    expected = {("SidelookLookupErrors", "critical"), ("SidelookBreakerOpen", "warning")}
    until(lambda: prometheus.firing() == set())

    watched.server.crash()

    until(lambda: expected <= prometheus.firing())
    assert prometheus.values("max(sidelook_breaker_state)") != [0]

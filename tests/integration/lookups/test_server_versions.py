"""Lookups, loads and notifications on a server of each supported major version of PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.connectors.postgres.triggers import trigger_sql
from tests.integration.lookups.postgres_versions import VERSIONS, postgres_of_version
from tests.integration.sidecars import postgres_sidecar
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SidecarProcess
from tools.processes.until import until

TABLE = """CREATE TABLE customers (id bigint PRIMARY KEY, name text NOT NULL, rate numeric(10, 2),
    at timestamptz, tags text[], b jsonb)"""
ROW = """INSERT INTO customers
    VALUES (1, 'one', 1.50, '2026-01-02 03:04:05.6+00', '{a,NULL}', '{"x": 1e20}')"""
ONE = {
    "name": "one",
    "rate": "1.50",
    "at": "2026-01-02T03:04:05.600000Z",
    "tags": ["a", None],
    "b": '{"x": 100000000000000000000}',
}
CHANNEL = "sidelook_customers"
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "whole": {"cache": {"mode": "full"}, "refresh": {"reload": {"every": "1h"}}},
    "followed": {"cache": {"ttl": "1d"}, "refresh": {"listen": {"channel": CHANNEL}}},
}


@pytest.fixture(params=VERSIONS, scope="module")
def versioned(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A database of this major version, with the table and its triggers."""
    try:
        with postgres_of_version(request.param) as database:
            triggers = trigger_sql("public.customers", ["id"], channel=CHANNEL)
            database.execute(TABLE, ROW, triggers)
            yield database
    except ToolUnavailable as error:
        pytest.skip(str(error))


def test_supported_versions_serve_all_ways(versioned: Database, folder: Path) -> None:
    """Each version answers lookups, loads a table, and reports a change to cached rows."""
    ways = {name: {"table": "public.customers", **own} for name, own in WAYS.items()}
    sidecar = postgres_sidecar(folder, versioned.dsn(), ways)
    with sidecar.running():
        until(lambda: _is_live(sidecar))
        first = {name: _look_up(sidecar, name) for name in ways}
        second = {name: _look_up(sidecar, name) for name in ways}
        versioned.execute("UPDATE customers SET name = 'uno' WHERE id = 1")
        until(lambda: _look_up(sidecar, "followed")[1]["name"] == "uno")

    row = ("fetched", ONE)
    assert first == {"plain": row, "whole": ("hit", ONE), "followed": row}
    assert second == dict.fromkeys(ways, ("hit", ONE))


def _look_up(sidecar: SidecarProcess, dimension: str) -> tuple[str, Any]:
    answer = sidecar.post(f"/v1/dimensions/{dimension}/lookup", {"keys": [1]}).json()
    return answer["outcomes"][0], answer["rows"][0]


def _is_live(sidecar: SidecarProcess) -> bool:
    feed = sidecar.get("/v1/dimensions/followed").json()["freshness"]["feed"]
    return bool(feed["state"] == "live")

"""What Debezium is told, where `java` is a script; tests/integration runs the real one."""

from dataclasses import replace
from pathlib import Path

import pytest

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from tests.demo.embedded_kafka.stub_programs import path_with, put_program

PLANES = CapturedTable(5433, "flights", "public.planes", prefix="demo", has_schemas=True)


def properties(path: Path) -> dict[str, str]:
    """A file of properties."""
    lines = path.read_text().split()
    return dict(line.split("=", 1) for line in lines)


def test_topics_follow_debezium() -> None:
    """Topics have the names that Debezium gives them."""
    assert PLANES.topic == "demo.public.planes"
    assert PLANES.heartbeat_topic == "__debezium-heartbeat.demo"


def test_several_tables_share_a_connector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a topic of its own; there is one heartbeat for all."""
    put_program(tmp_path, "java", "exec sleep 60")
    monkeypatch.setenv("PATH", path_with(tmp_path))
    both = replace(PLANES, others=("public.airports",))

    with debezium_connector(tmp_path / "debezium", both, brokers="one:9092", libraries=tmp_path):
        pass

    connector = properties(tmp_path / "debezium" / "connector.properties")
    assert connector["table.include.list"] == "public.planes,public.airports"
    topics = [both.topic_of(table) for table in (both.table, *both.others)]
    assert topics == ["demo.public.planes", "demo.public.airports"]


def test_connector_is_told_what_to_capture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs with the table, its server and the brokers, until the end."""
    put_program(tmp_path, "java", "exec sleep 60")
    monkeypatch.setenv("PATH", path_with(tmp_path))
    folder = tmp_path / "debezium"

    with debezium_connector(folder, PLANES, brokers="one:9092", libraries=tmp_path) as process:
        was_running = process.is_running

    assert (was_running, process.is_running) == (True, False)
    worker = properties(folder / "worker.properties")
    assert worker["bootstrap.servers"] == "one:9092"
    assert worker["value.converter.schemas.enable"] == "true"
    connector = properties(folder / "connector.properties")
    assert connector["database.port"] == "5433"
    assert connector["database.dbname"] == "flights"
    assert connector["table.include.list"] == "public.planes"
    assert connector["skipped.operations"] == "none"

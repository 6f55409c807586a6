"""Changelog of the live run: Debezium publishes changes to Kafka topics."""

import asyncio
import socket
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from demo.dimension import Dimension
from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.java_process import JavaProcess
from demo.embedded_kafka.kafka_broker import KafkaUnavailable, kafka_broker
from demo.embedded_kafka.kafka_topics import create_topic
from demo.postgres import DATABASE, Postgres

_CHUNK_BYTES = 65_536


@contextmanager
def unix_relay(socket_path: str) -> Iterator[int]:
    """The port that leads to the socket, in threads of its own, until the end."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as upstream:
                upstream.connect(socket_path)
                _pass_on(self.request, upstream)

    with _RelayServer(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _RelayServer(socketserver.ThreadingTCPServer):
    # A connection that nobody closes must not keep the demonstration from its end.
    daemon_threads = True
    block_on_close = False


def _pass_on(left: socket.socket, right: socket.socket) -> None:
    # A thread for each direction: both sides may have full buffers, and read again when theirs go.
    back = threading.Thread(target=_pump, args=(right, left), daemon=True)
    back.start()
    _pump(left, right)
    back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    except OSError:
        pass  # one side is gone; the other one is told below
    for each in (source, sink):
        with suppress(OSError):  # closed already
            each.shutdown(socket.SHUT_RDWR)


SCHEMA = "public"
START_TIMEOUT_S = 90.0
POLL_INTERVAL_S = 0.1
IS_FOLLOWED = "SELECT count(*) FROM pg_replication_slots WHERE active"

Settings = dict[str, dict[str, Any]]  # {dimension: what its `refresh.changelog` is}


@contextmanager
def running_changelog(
    folder: Path, postgres: Postgres, dimensions: Sequence[Dimension], *, libraries: Path
) -> Iterator[Settings]:
    """Follow the tables until the end; what is committed from the start on is told.

    Raises KafkaUnavailable where Kafka or Debezium does not start.
    """
    first, *others = (f"{SCHEMA}.{dimension.name}" for dimension in dimensions)
    with (
        kafka_broker(folder / "kafka", libraries=libraries) as broker,
        unix_relay(postgres.socket) as port,
    ):
        captured = CapturedTable(port, DATABASE, first, others=tuple(others))
        for table in (first, *others):
            asyncio.run(create_topic(broker.address, captured.topic_of(table)))
        with debezium_connector(
            folder / "debezium", captured, brokers=broker.address, libraries=libraries
        ) as debezium:
            _wait_until_followed(postgres.admin_dsn, debezium)
            yield {each.name: _settings(each, captured, broker.address) for each in dimensions}


def _settings(dimension: Dimension, captured: CapturedTable, brokers: str) -> dict[str, Any]:
    return {
        "brokers": [brokers],
        "topic": captured.topic_of(f"{SCHEMA}.{dimension.name}"),
        "format": "debezium_json",
        "heartbeat_topic": captured.heartbeat_topic,
    }


def _wait_until_followed(dsn: str, debezium: JavaProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(IS_FOLLOWED).fetchone() == (0,):
            if not debezium.is_running or time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Debezium did not start: {debezium.log.read_text()[-2000:]}"
                )
            time.sleep(POLL_INTERVAL_S)

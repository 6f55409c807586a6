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

SCHEMA = "public"
START_TIMEOUT_S = 90.0
POLL_INTERVAL_S = 0.1
ACTIVE_SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE active"
_CHUNK_BYTES = 65_536

Settings = dict[str, dict[str, Any]]  # {dimension: its `refresh.changelog`}


@contextmanager
def running_changelog(
    folder: Path, postgres: Postgres, dimensions: Sequence[Dimension], *, libraries: Path
) -> Iterator[Settings]:
    """Publish all changes of the tables that are committed within the block.

    Raises KafkaUnavailable if Kafka or Debezium does not start.
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
            _wait_for_slot(postgres.admin_dsn, debezium)
            yield {
                each.name: {
                    "brokers": [broker.address],
                    "topic": captured.topic_of(f"{SCHEMA}.{each.name}"),
                    "format": "debezium_json",
                    "heartbeat_topic": captured.heartbeat_topic,
                }
                for each in dimensions
            }


def _wait_for_slot(dsn: str, debezium: JavaProcess) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    with psycopg.connect(dsn, autocommit=True) as connection:
        while connection.execute(ACTIVE_SLOTS).fetchone() == (0,):
            if not debezium.is_running or time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"Debezium did not start: {debezium.log.read_text()[-2000:]}"
                )
            time.sleep(POLL_INTERVAL_S)


@contextmanager
def unix_relay(socket_path: str) -> Iterator[int]:
    """Relay a TCP port on loopback, which is yielded, to a Unix socket."""

    class Relay(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as upstream:
                upstream.connect(socket_path)
                # A thread per direction: a full buffer on one side must not block the other.
                back = threading.Thread(target=_pump, args=(upstream, self.request), daemon=True)
                back.start()
                _pump(self.request, upstream)
                back.join()

    with _RelayServer(("127.0.0.1", 0), Relay) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


class _RelayServer(socketserver.ThreadingTCPServer):
    # Open connections must not keep the process running.
    daemon_threads = True
    block_on_close = False


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while chunk := source.recv(_CHUNK_BYTES):
            sink.sendall(chunk)
    except OSError:
        pass  # one side has closed; the shutdown informs the other
    for each in (source, sink):
        with suppress(OSError):  # already closed
            each.shutdown(socket.SHUT_RDWR)

"""Servers of the integration tests: PostgreSQL, PgBouncer and Kafka."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from tests.integration.pgbouncer import PgBouncer, pgbouncer
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import Database, PostgresServer, running_postgres

GUEST_PASSWORD = "opens-sesame"  # of the Kafka user `guest`, which has no rights

pytest.register_assert_rewrite(
    "tests.service.connectors.backend_contract", "tests.service.connectors.source_contract"
)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The server of this run."""
    with running_postgres() as server:
        yield server


@pytest.fixture
def database(postgres_server: PostgresServer) -> Database:
    """An empty database of this test."""
    return postgres_server.new_database()


@pytest.fixture
def bouncer(
    tmp_path: Path, database: Database, postgres_server: PostgresServer
) -> Iterator[PgBouncer]:
    """A PgBouncer in transaction mode in front of the database of this test."""
    try:
        with pgbouncer(tmp_path, database, system_user=postgres_server.system_user) as bouncer:
            yield bouncer
    except ToolUnavailable as error:
        pytest.skip(str(error))


@pytest.fixture
def folder() -> Iterator[Path]:
    """The files of a sidecar."""
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))  # short: socket paths are limited
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def followed_server() -> Iterator[PostgresServer]:
    """A server with `wal_level = logical`, and slots for the connectors of a whole module."""
    with running_postgres() as server:
        server.new_database().execute(
            "ALTER SYSTEM SET wal_level = logical",
            "ALTER SYSTEM SET max_replication_slots = 40",
            "ALTER SYSTEM SET max_wal_senders = 40",
        )
        server.stop()
        server.start()
        yield server


@pytest.fixture
def followed(followed_server: PostgresServer) -> Database:
    """An empty database of this test, for logical decoding."""
    return followed_server.new_database()


@pytest.fixture(scope="session")
def kafka(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The broker of this run; tests that stop a broker start their own."""
    folder = tmp_path_factory.mktemp("kafka")
    with kafka_broker(folder, libraries=libraries, users={"guest": GUEST_PASSWORD}) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of this test; the topic does not exist yet."""
    return re.sub(r"\W+", "-", request.node.name)

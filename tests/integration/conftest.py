"""What the integration tests share: one PostgreSQL server, and one broker of Kafka.

Not what single tests do to them.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from tools.processes.postgres_server import Database, PostgresServer, running_postgres

GUEST_PASSWORD = "opens-sesame"  # of a user of Kafka who may do nothing

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


@pytest.fixture(scope="module")
def followed_server() -> Iterator[PostgresServer]:
    """A server that writes down what logical decoding needs."""
    with running_postgres() as server:
        server.new_database().execute("ALTER SYSTEM SET wal_level = logical")
        server.stop()
        server.start()
        yield server


@pytest.fixture
def followed(followed_server: PostgresServer) -> Database:
    """An empty database of this test, whose changes can be decoded."""
    return followed_server.new_database()


@pytest.fixture(scope="session")
def kafka(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """The broker of this run; whoever kills one has another."""
    folder = tmp_path_factory.mktemp("kafka")
    with kafka_broker(folder, libraries=libraries, users={"guest": GUEST_PASSWORD}) as broker:
        yield broker


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """The name of a topic that only this test has; the topic is not there yet."""
    return re.sub(r"\W+", "-", request.node.name)

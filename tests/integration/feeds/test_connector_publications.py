"""Publications that a real Debezium reads: what they omit, and what a column list leaves."""

from dataclasses import replace
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from lookup_core.errors import BackendError
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from tests.integration.feeds.kafka_reading import PATIENCE_S
from tests.integration.feeds.test_debezium import capturing
from tools.processes.postgres_server import Database

TABLE = "CREATE TABLE customers (id bigint PRIMARY KEY, name text, active bool NOT NULL)"
ROWS = "INSERT INTO customers VALUES (1, 'one', false), (2, 'two', true), (3, 'three', true)"
PROBE = "INSERT INTO customers SELECT min(id) - 1, 'probe', true FROM customers"
OPTIONS = ("publication.name=dbz", "publication.autocreate.mode=disabled")


@pytest.mark.parametrize(
    ("publication", "reason"),
    [
        ("FOR TABLE customers WITH (publish = 'insert, update')", "does not report each delete"),
        ("FOR TABLE customers WHERE (active)", "has a row filter"),
    ],
)
async def test_omitted_changes_are_refused_before(
    *,
    kafka: KafkaBroker,
    followed: Database,
    tmp_path: Path,
    libraries: Path,
    publication: str,
    reason: str,
) -> None:
    """A publication that the connector accepts, and that omits changes, is refused beforehand."""
    followed.execute(
        *(TABLE, ROWS, "ALTER TABLE customers REPLICA IDENTITY FULL"),
        f"CREATE PUBLICATION dbz {publication}",
    )
    plain = PostgresSettings(followed.dsn(), "public.customers", ("id",), is_followed=True)
    async with capturing(
        plain, followed, kafka, folder=tmp_path, libraries=libraries, options=OPTIONS
    ) as captured:
        with captured.connector():
            await captured.begin(PROBE)
            await captured.run(
                "UPDATE customers SET name = 'new' WHERE id = 1",
                "DELETE FROM customers WHERE id = 1",
                "INSERT INTO customers VALUES (9, 'last', true)",
            )
            await captured.read.until(lambda: 9 in captured.read.keys)
            keys = [key for key in captured.read.keys if key > 0]
    async with PostgresBackend(replace(plain, needs_publication=True)) as backend:
        with pytest.raises(BackendError, match=reason):
            await backend.describe(timeout_s=PATIENCE_S)

    assert keys.count(1) < 2, "the connector has reported both changes"

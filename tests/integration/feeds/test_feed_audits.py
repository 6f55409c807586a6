"""What a real Debezium omits or masks: found by the audit of a sidecar, whose answers are right."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.embedded_kafka.debezium_connector import CapturedTable, debezium_connector
from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from demo.live.changelog import unix_relay
from tests.integration.feeds.followed_table import LONG, FollowedTable, SourceTable, following
from tools.processes.postgres_server import Database
from tools.processes.until import until

FULL = {"mode": "full"}
QUICK = {"every": "1s", "keys": 50}
WITHIN_S = 150.0  # without comparable ids, a change of a key proves nothing for 60 s


@contextmanager
def captured(
    kafka: KafkaBroker,
    database: Database,
    *,
    folder: Path,
    libraries: Path,
    option: str,
    cache: dict[str, str],
) -> Iterator[FollowedTable]:
    """A table, a connector with this option, and a sidecar with quick audits that follows it."""
    database.execute(
        "CREATE TABLE customers (id int PRIMARY KEY, name text NOT NULL, note text)",
        "INSERT INTO customers SELECT each, 'name ' || each FROM generate_series(1, 40) each",
    )
    with unix_relay(f"{database.socket_folder}/.s.PGSQL.5432") as port:
        connector = CapturedTable(
            port, database.name, "public.customers", prefix=database.name, options=(option,)
        )
        asyncio.run(create_topic(kafka.address, connector.topic))
        table = SourceTable("customers", database, kafka.address)
        dimension = table.dimension(
            cache=cache,
            topic=connector.topic,
            heartbeat_topic=connector.heartbeat_topic,
            max_staleness="5s",
        )
        dimension["refresh"]["audit"] = QUICK
        with (
            debezium_connector(folder, connector, brokers=kafka.address, libraries=libraries),
            following([table], {"customers": dimension}, ready="/livez") as (customers,),
        ):
            customers.wait_until_live()
            yield customers


def test_skipped_deletes_end_the_trust(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """A connector that skips deletions is named incomplete, and the deleted row is missing."""
    with captured(
        *(kafka, followed),
        folder=tmp_path,
        libraries=libraries,
        option="skipped.operations=d",
        cache=LONG,
    ) as customers:
        customers.keep(1, 2)
        followed.execute("DELETE FROM customers WHERE id = 1")
        until(lambda: customers.feed()["state"] == "incomplete", within_s=WITHIN_S)
        answers = customers.look_up(1, 2)
        health = customers.health()

    assert answers == [("missing", None), ("fetched", "name 2")]
    assert [each["code"] for each in health] == ["feed_incomplete"]


def test_masked_columns_are_never_served(
    kafka: KafkaBroker, followed: Database, tmp_path: Path, *, libraries: Path
) -> None:
    """Values of events that differ from the table are not used: each answer is the table's."""
    with captured(
        *(kafka, followed),
        folder=tmp_path,
        libraries=libraries,
        option="column.mask.with.5.chars=public.customers.name",
        cache=FULL,
    ) as customers:
        until(lambda: customers.outcomes(1) == {"hit"})
        followed.execute("UPDATE customers SET name = 'second text' WHERE id = 1")
        until(lambda: customers.look_up(1)[0][1] != "name 1")
        first = customers.look_up(1)[0][1]
        until(lambda: customers.feed()["are_values_refused"], within_s=WITHIN_S)
        followed.execute("UPDATE customers SET name = 'third text' WHERE id < 4")
        earlier = {"second text", "name 2", "name 3"}
        until(lambda: not earlier & {name for _, name in customers.look_up(1, 2, 3)})
        later = {name for _, name in customers.look_up(1, 2, 3)}
        state = customers.feed()["state"]

    assert (first, later, state) == ("second text", {"third text"}, "live")

"""A sidecar in full cache mode: a table is loaded, then kept fresh by a changelog."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.feeds.followed_table import (
    NAMES,
    UNPROVED,
    Answer,
    FollowedTable,
    SourceTable,
    following,
    following_new_tables,
)
from tools.processes.postgres_server import PostgresServer
from tools.processes.sidecar_process import SidecarFigures
from tools.processes.until import until

FULL = {"mode": "full"}
HITS = [("hit", name) for name in NAMES.values()]


@pytest.fixture(scope="module")
def unused(postgres_server: PostgresServer, kafka: KafkaBroker) -> Iterator[list[FollowedTable]]:
    """Tables that one sidecar holds in full and no test has used."""
    with following_new_tables(postgres_server, kafka.address, 4, cache=UNPROVED) as planes:
        yield planes


@pytest.fixture
def planes(unused: list[FollowedTable]) -> FollowedTable:
    """A table of this test, loaded and followed."""
    return unused.pop()


@pytest.mark.real_path
def test_row_events_are_applied(planes: FollowedTable) -> None:
    """Inserts, updates and deletions of the changelog are visible without a query."""
    first = planes.look_up(1, 2, 3, 4)
    insertion = planes.table.commit(f"INSERT INTO {planes.name} VALUES (4, 'four')")
    deletion = planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 3")
    messages = planes.table.messages
    row = {"id": 4, "name": "four", "note": None}

    planes.publish(planes.table.rename(1, "uno"))
    planes.publish(messages.upsert(row, transaction_id=insertion, operation="c"), partition=1)
    planes.publish(messages.deletion(3, transaction_id=deletion), messages.tombstone(3))

    assert first == [*HITS, ("missing", None)]
    assert planes.look_up(1, 2, 3, 4) == [
        *(("hit", "uno"), HITS[1], ("missing", None), ("hit", "four"))
    ]
    assert queries(planes) == 0


def test_row_published_again_is_fetched(planes: FollowedTable) -> None:
    """If a connector repeats an earlier event, the current row is fetched."""
    placed = planes.table.messages.placed
    former = placed(planes.table.rename(1, "uno"), 10)
    planes.publish(former, placed(planes.table.rename(1, "eins"), 20))
    applied = planes.look_up(1)
    planes.publish(former)

    repeated = planes.look_up(1)
    planes.keep(1)  # ids of an unknown system have a hold-off
    repeated += planes.look_up(1)

    assert (applied, repeated) == ([("hit", "eins")], [("fetched", "eins"), ("hit", "eins")])


def test_start_ends_with_the_load(postgres_server: PostgresServer, kafka: KafkaBroker) -> None:
    """Until the first load, /startupz states the reason and lookups wait for the load."""
    table = SourceTable("late", postgres_server.new_database(), kafka.address)
    table.create()
    late = {**table.dimension(cache=FULL, topic="late-changes"), "timeout": "20s"}
    with (
        following([table], {"late": late}, ready="/livez") as (planes,),
        ThreadPoolExecutor() as pool,
    ):
        until(lambda: "feed" in startup(planes))
        with table.database.locked("late"):
            asyncio.run(create_topic(kafka.address, "late-changes"))
            until(lambda: "loading" in startup(planes))
            waiting: Future[list[Answer]] = pool.submit(planes.look_up, 1, 9)
            figures = SidecarFigures(planes.sidecar)
            until(lambda: figures.read()["sidelook_in_flight_records"] == 2)
            is_answered = waiting.done()
        until(lambda: startup(planes) == "ok\n")

        assert (is_answered, waiting.result()) == (False, [("fetched", "one"), ("missing", None)])
        assert queries(planes) == 0


def queries(planes: FollowedTable) -> float:
    """The number of queries of the dimension."""
    return planes.metric("sidelook_backend_queries_total")


def startup(planes: FollowedTable) -> str:
    """The text of /startupz."""
    return planes.sidecar.health("/startupz").text

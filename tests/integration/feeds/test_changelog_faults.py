"""A sidecar with a broker that is down, silent or refuses access: cached rows are bypassed."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.feeds.followed_table import (
    NAMES,
    Answer,
    BeatingConnector,
    FollowedTable,
    SourceTable,
    following,
)
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.until import until

HEARTBEATS = "heartbeats"
MAX_STALENESS_S = 5.0
FETCHED = [("fetched", name) for name in NAMES.values()]
HITS = [("hit", name) for name in NAMES.values()]


@pytest.fixture(scope="module")
def broker(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that tests stop; each test leaves it running."""
    folder = tmp_path_factory.mktemp("kafka")
    with kafka_broker(folder, libraries=libraries) as broker:
        yield broker


@pytest.fixture(scope="module")
def database_of_all(postgres_server: PostgresServer) -> Database:
    """The database of all tables."""
    return postgres_server.new_database()


@pytest.fixture(scope="module")
def beating(broker: KafkaBroker, database_of_all: Database) -> Iterator[FollowedTable]:
    """A table whose connector sends heartbeats."""
    table = SourceTable("beating", database_of_all, broker.address)
    table.create()
    asyncio.run(create_topic(broker.address, HEARTBEATS))
    dimension = table.dimension(heartbeat_topic=HEARTBEATS, max_staleness=f"{MAX_STALENESS_S:g}s")
    with following([table], {table.name: dimension}) as (beating,):
        yield beating


@pytest.fixture
def connector(beating: FollowedTable) -> Iterator[BeatingConnector]:
    """The connector of that table, whose rows are cached under their first names."""
    beating.table.database.execute(f"UPDATE {beating.name} SET name = 'one' WHERE id = 1")
    with BeatingConnector(beating.table, HEARTBEATS) as connector:
        # Not by the connector, which does not report when a message is read.
        beating.publish(beating.table.rename(1, "one"))
        until(lambda: beating.look_up(*NAMES) == HITS)
        yield connector


def test_broker_may_be_down_at_the_start(broker: KafkaBroker, database_of_all: Database) -> None:
    """Without a broker, lookups are answered uncached; when it starts, rows are cached (E1)."""
    table = SourceTable("early", database_of_all, broker.address)
    table.create()
    with ExitStack() as stack:
        with outage(broker, "kill"):
            (planes,) = stack.enter_context(following([table]))
            before = [planes.look_up(*NAMES) for _ in range(2)]
            until(lambda: broker.address in reasons(planes))
            state = planes.feed()["state"]
        planes.keep(*NAMES)
        planes.publish(table.rename(1, "uno"))
        after = planes.look_up(1, 2)

    assert (before, state) == ([FETCHED, FETCHED], "starting")
    assert after == [("fetched", "uno"), HITS[1]]


@pytest.mark.parametrize("fault", ["freeze", "kill"])
def test_change_in_an_outage_is_not_missed(
    broker: KafkaBroker, beating: FollowedTable, connector: BeatingConnector, fault: str
) -> None:
    """In an outage rows are fetched; no later hit is older than a change in the outage (E2)."""
    with outage(broker, fault):
        beating.wait_until_bypassed()
        connector.publish(beating.table.rename(1, "uno"))
        changed_s = time.monotonic()
        during = [beating.look_up(*NAMES) for _ in range(2)]
        # Before that, a heartbeat that was sent before the change may allow the former row.
        until(lambda: time.monotonic() > changed_s + MAX_STALENESS_S)
    after = answers_until_hit(beating)

    assert during == [[("fetched", "uno"), *FETCHED[1:]]] * 2
    assert {answer[0][1] for answer in after} == {"uno"}
    assert beating.look_up(*NAMES) == [("hit", "uno"), *HITS[1:]]


def reasons(planes: FollowedTable) -> str:
    """The errors of the feed and of its partitions."""
    feed = planes.feed()
    return f"{[feed['last_error'], *(split['last_error'] for split in feed['splits'])]}"


def answers_until_hit(planes: FollowedTable) -> list[list[Answer]]:
    """Look up until all keys are hits; all answers."""
    answers: list[list[Answer]] = []

    def are_hits() -> bool:
        answers.append(planes.look_up(*NAMES))
        return {outcome for outcome, _ in answers[-1]} == {"hit"}

    until(are_hits)
    return answers


@contextmanager
def outage(broker: KafkaBroker, fault: str) -> Iterator[None]:
    """The broker is frozen or killed until the end of the block."""
    (broker.freeze if fault == "freeze" else broker.kill)()
    try:
        yield
    finally:
        (broker.thaw if fault == "freeze" else broker.start)()

"""A whole sidecar that holds tables whole: loaded, followed by a topic of Kafka, loaded anew."""

import asyncio
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.changelog_sidecar import Answer, ChangelogSidecar, changelog_sidecar
from tests.integration.debezium_messages import NONSENSE, PLACEHOLDER
from tests.integration.told_table import NAMES, FollowedTable, ToldTable
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.until import until

HELD = {"mode": "full"}
HITS = [("hit", name) for name in NAMES.values()]
READER = "reads_whole_tables"  # a role that may lose its rights
NEW = {"id": 4, "name": "four", "note": None}


@pytest.fixture(scope="module")
def database_of_all(postgres_server: PostgresServer) -> Database:
    """Where all tables of these tests are."""
    database = postgres_server.new_database()
    database.execute(f"CREATE ROLE {READER} LOGIN")
    return database


@pytest.fixture(scope="module")
def unused(kafka: KafkaBroker, database_of_all: Database) -> Iterator[list[FollowedTable]]:
    """Tables that one sidecar holds whole, and that no test has used; the last has no feed."""
    names = ["whole_0", "whole_1", "whole_2", "whole_3", "whole_4", "unfollowed"]
    tables = [ToldTable(name, database_of_all, kafka.address) for name in names]
    for table in tables:
        table.create()
    dimensions = {table.name: table.dimension(cache=HELD) for table in tables}
    database_of_all.execute(f"GRANT SELECT ON unfollowed TO {READER}")
    unfollowed = dimensions["unfollowed"]
    unfollowed["source"]["dsn"] = database_of_all.dsn(user=READER)
    unfollowed["refresh"] = {"reload": {"every": "1d"}}
    with changelog_sidecar(dimensions) as sidecar:
        yield [FollowedTable(table, sidecar) for table in tables]


@pytest.fixture
def planes(unused: list[FollowedTable]) -> FollowedTable:
    """A table of this test, loaded and followed."""
    return unused.pop(0)


@pytest.fixture
def unfollowed(unused: list[FollowedTable]) -> FollowedTable:
    """A table that is loaded, and of whose changes nobody tells."""
    return unused.pop()


@pytest.mark.real_path
def test_told_rows_are_applied(planes: FollowedTable) -> None:
    """Inserts, updates and deletions are seen, absences known, and no query is sent."""
    first = planes.look_up(1, 2, 3, 4)
    insertion = planes.table.commit(f"INSERT INTO {planes.name} VALUES (4, 'four')")
    deletion = planes.table.commit(f"DELETE FROM {planes.name} WHERE id = 3")
    messages = planes.table.messages

    planes.tell(planes.table.rename(1, "uno"))
    planes.tell(messages.upsert(NEW, transaction_id=insertion, operation="c"), partition=1)
    planes.tell(messages.deletion(3, transaction_id=deletion), messages.tombstone(3))

    assert first == [*HITS, ("missing", None)]
    assert planes.look_up(1, 2, 3, 4) == [
        *(("hit", "uno"), ("hit", "two"), ("missing", None), ("hit", "four"))
    ]
    assert planes.sidecar.queries(planes.name) == 0


def test_value_left_out_is_fetched_once(planes: FollowedTable) -> None:
    """A placeholder is not a value: whoever asks for the row first has it fetched (E12)."""
    transaction_id = planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")
    row = {"id": 1, "name": "uno", "note": PLACEHOLDER}

    planes.tell(planes.table.messages.upsert(row, transaction_id=transaction_id))

    assert planes.look_up(1, 2) == [("fetched", "uno"), ("hit", "two")]
    assert planes.look_up(1, 2) == [("hit", "uno"), ("hit", "two")]
    assert planes.sidecar.queries(planes.name) == 1


def test_row_told_again_is_fetched(planes: FollowedTable) -> None:
    """A connector that begins anew tells a former row; the one that there is now is fetched."""
    placed = planes.table.messages.placed
    former = placed(planes.table.rename(1, "uno"), 10)
    planes.tell(former, placed(planes.table.rename(1, "eins"), 20))
    told = planes.look_up(1)
    planes.tell(former)

    again = planes.look_up(1) + planes.look_up(1)

    assert (told, again) == ([("hit", "eins")], [("fetched", "eins"), ("hit", "eins")])


def test_truncation_is_followed_by_a_load(planes: FollowedTable) -> None:
    """All is forgotten, and the table is what it is when it is read anew (E9)."""
    transaction_id = planes.table.commit(f"TRUNCATE {planes.name}")
    planes.table.commit(f"INSERT INTO {planes.name} VALUES (4, 'four')")

    planes.tell(planes.table.messages.truncation(transaction_id=transaction_id))
    until(lambda: loads(planes, "ok") == 2)

    assert planes.look_up(1, 4) == [("missing", None), ("hit", "four")]


def test_undecodable_message_is_followed_by_a_load(planes: FollowedTable) -> None:
    """What it would have told is seen all the same, as soon as a read must have seen it (E14)."""
    planes.table.commit(f"UPDATE {planes.name} SET name = 'uno' WHERE id = 1")

    planes.tell(NONSENSE)
    doubted = planes.look_up(*NAMES)
    until(lambda: loads(planes, "ok") == 2)

    assert doubted == [("fetched", "uno"), ("fetched", "two"), ("fetched", "three")]
    assert planes.look_up(*NAMES) == [("hit", "uno"), ("hit", "two"), ("hit", "three")]


def test_failed_load_keeps_the_rows(unfollowed: FollowedTable) -> None:
    """They get older, and the failure is counted; a load that ends well takes their place."""
    database, dimension = unfollowed.table.database, unfollowed.name
    database.execute(
        f"UPDATE {dimension} SET name = 'uno' WHERE id = 1",
        f"REVOKE SELECT ON {dimension} FROM {READER}",
    )
    asked_s = time.monotonic()
    reload(unfollowed)
    until(lambda: loads(unfollowed, "error"))
    staler_s, kept = staleness_s(unfollowed), unfollowed.look_up(*NAMES)
    until(lambda: staleness_s(unfollowed) > staler_s)
    reason = unfollowed.sidecar.freshness(dimension)["load"]["last_error"]
    database.execute(f"GRANT SELECT ON {dimension} TO {READER}")
    until(lambda: loads(unfollowed, "ok") == 2)

    assert kept == HITS
    assert "the role of the DSN may not read" in reason
    assert unfollowed.look_up(1, 2) == [("hit", "uno"), ("hit", "two")]
    assert staleness_s(unfollowed) < time.monotonic() - asked_s  # of a load that began since then


def test_start_ends_with_the_load(kafka: KafkaBroker, database_of_all: Database) -> None:
    """Until then startupz says what is waited for, and lookups wait, too."""
    table = ToldTable("late", database_of_all, kafka.address)
    table.create()
    late = {**table.dimension(cache=HELD, topic="late-changes"), "timeout": "20s"}
    with changelog_sidecar({"late": late}, ready="/livez") as sidecar, ThreadPoolExecutor() as pool:
        until(lambda: "its load waits for its feed: " in startup(sidecar))
        with database_of_all.locked("late"):
            asyncio.run(create_topic(kafka.address, "late-changes"))
            until(lambda: "loading: 0" in startup(sidecar))
            waiting: Future[list[Answer]] = pool.submit(sidecar.look_up, "late", [1, 9])
            until(lambda: sidecar.figure("sidelook_in_flight_records") == 2)
            is_answered = waiting.done()
        until(lambda: startup(sidecar) == "ok\n")

        assert (is_answered, waiting.result()) == (False, [("fetched", "one"), ("missing", None)])
        assert sidecar.queries("late") == 0


def loads(planes: FollowedTable, result: str) -> float:
    """How many loads have ended so."""
    name = "sidelook_dimension_loads_total"
    return planes.sidecar.figure(name, dimension=planes.name, result=result)


def staleness_s(planes: FollowedTable) -> float:
    """How far what is held may lag its table."""
    return planes.sidecar.figure("sidelook_dimension_staleness_seconds", dimension=planes.name)


def reload(planes: FollowedTable) -> None:
    """Ask for a load."""
    reply = planes.sidecar.process.post(f"/v1/dimensions/{planes.name}/reload", {})
    assert reply.status in {200, 202}, reply.text


def startup(sidecar: ChangelogSidecar) -> str:
    """What startupz says."""
    return sidecar.process.health("/startupz").text

"""A whole sidecar whose broker is away, falls silent, dies, or refuses: it passes its cache by."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from demo.embedded_kafka.kafka_broker import KafkaBroker, kafka_broker
from demo.embedded_kafka.kafka_topics import create_topic
from tests.integration.changelog_sidecar import Answer, changelog_sidecar
from tests.integration.conftest import GUEST_PASSWORD
from tests.integration.kafka_rights import allow_reading, forbid_reading
from tests.integration.telling_connector import TellingConnector
from tests.integration.told_table import NAMES, FollowedTable, ToldTable
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.until import until

HEARTBEATS = "heartbeats"
MAX_STALENESS_S = 5.0  # of heartbeats several times a second
FETCHED = [("fetched", name) for name in NAMES.values()]
REFUSED = "the user may not read or describe the topic"
BYPASS_WITHIN_S = 14.0  # of silence; 10 s, and what a busy machine needs


@pytest.fixture(scope="module")
def broker(libraries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that may be killed; each test leaves it running."""
    folder = tmp_path_factory.mktemp("kafka")
    users = {"guest": GUEST_PASSWORD}
    with kafka_broker(folder, libraries=libraries, users=users) as broker:
        yield broker


@pytest.fixture(scope="module")
def database_of_all(postgres_server: PostgresServer) -> Database:
    """Where all tables of these tests are."""
    return postgres_server.new_database()


@pytest.fixture(scope="module")
def followed(
    broker: KafkaBroker, database_of_all: Database, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, FollowedTable]]:
    """Three tables: one whose connector beats, one without heartbeats, one for a guest."""
    password = tmp_path_factory.mktemp("secrets") / "password"
    password.write_text(GUEST_PASSWORD)
    password.chmod(0o600)
    login = {"mechanism": "PLAIN", "username": "guest", "password_file": str(password)}
    tables = {
        name: ToldTable(name, database_of_all, broker.address)
        for name in ("beating", "quiet", "guarded")
    }
    for table in tables.values():
        table.create()
    asyncio.run(create_topic(broker.address, HEARTBEATS))
    asyncio.run(allow_reading(broker.address, "guest", "guarded"))
    dimensions = {
        "beating": tables["beating"].dimension(
            heartbeat_topic=HEARTBEATS, max_staleness=f"{MAX_STALENESS_S:g}s"
        ),
        "quiet": tables["quiet"].dimension(),
        "guarded": tables["guarded"].dimension(brokers=[broker.sasl_address], security=login),
    }
    with changelog_sidecar(dimensions) as sidecar:
        yield {name: FollowedTable(table, sidecar) for name, table in tables.items()}


@pytest.fixture
def beating(followed: Mapping[str, FollowedTable]) -> FollowedTable:
    """A table whose connector tells that it lives."""
    return followed["beating"]


@pytest.fixture
def connector(beating: FollowedTable) -> Iterator[TellingConnector]:
    """The connector of that table; all its rows are in the cache, under their first names."""
    beating.table.database.execute(f"UPDATE {beating.name} SET name = 'one' WHERE id = 1")
    with TellingConnector(beating.table, HEARTBEATS) as connector:
        # Not by the connector, which does not tell when it is read: a hit might be too early.
        beating.tell(beating.table.rename(1, "one"))
        until(lambda: beating.look_up(*NAMES) == [("hit", name) for name in NAMES.values()])
        yield connector


def test_broker_may_be_down_at_the_start(broker: KafkaBroker, database_of_all: Database) -> None:
    """Lookups are answered and nothing is kept; when the broker comes, caching begins (E1)."""
    table = ToldTable("early", database_of_all, broker.address)
    table.create()
    with ExitStack() as stack:
        with outage(broker, "kill"):
            dimensions = {table.name: table.dimension()}
            sidecar = stack.enter_context(changelog_sidecar(dimensions))
            planes = FollowedTable(table, sidecar)
            before = [planes.look_up(*NAMES) for _ in range(2)]
            until(lambda: broker.address in reasons(planes))
            state = sidecar.feed_state(planes.name)
        planes.keep(*NAMES)
        planes.tell(table.rename(1, "uno"))
        after = planes.look_up(1, 2)

    assert (before, state) == ([FETCHED, FETCHED], "starting")
    assert after == [("fetched", "uno"), ("hit", "two")]


@pytest.mark.parametrize("fault", ["freeze", pytest.param("kill", marks=pytest.mark.full)])
def test_change_in_an_outage_is_not_missed(
    broker: KafkaBroker,
    followed: Mapping[str, FollowedTable],
    connector: TellingConnector,
    fault: str,
) -> None:
    """Without a broker all is fetched; with it, hits come back when all is told (E2)."""
    beating = followed["beating"]
    with outage(broker, fault):
        beating.sidecar.wait_until_passed_by("beating")
        connector.tell(beating.table.rename(1, "uno"))
        changed_s = time.monotonic()
        during = [beating.look_up(*NAMES) for _ in range(2)]
        # Till then the former row may be served, if the last heartbeat comes through after all.
        until(lambda: time.monotonic() > changed_s + MAX_STALENESS_S)
    after = answers_until_hit(beating)

    assert during == [[("fetched", "uno"), *FETCHED[1:]]] * 2
    assert {answer[0][1] for answer in after} == {"uno"}
    assert beating.look_up(*NAMES) == [("hit", "uno"), ("hit", "two"), ("hit", "three")]


@pytest.mark.full
def test_silent_broker_is_not_believed(
    broker: KafkaBroker, followed: Mapping[str, FollowedTable]
) -> None:
    """Without heartbeats, hits end after 10 s without a word, and are back with it (E2)."""
    quiet = followed["quiet"]
    quiet.keep(*NAMES)
    with outage(broker, "freeze"):
        first = quiet.outcomes(*NAMES)
        silent_after_s = quiet.sidecar.wait_until_passed_by(quiet.name)
        during = [quiet.look_up(*NAMES) for _ in range(2)]
    quiet.sidecar.wait_until_live(quiet.name)

    assert (first, during) == ({"hit"}, [FETCHED, FETCHED])
    assert silent_after_s < BYPASS_WITHIN_S
    assert quiet.outcomes(*NAMES) == {"hit"}


def test_connector_that_hangs_is_not_believed(
    beating: FollowedTable, connector: TellingConnector
) -> None:
    """The broker lives, but who should tell of changes does not (E17)."""
    with connector.paused():
        beating.sidecar.wait_until_passed_by(beating.name)
        during = [beating.look_up(*NAMES) for _ in range(2)]
        is_live = beating.sidecar.figure("sidelook_dimension_feed_live", dimension=beating.name)
    beating.sidecar.wait_until_live(beating.name)

    assert (during, is_live) == ([FETCHED, FETCHED], 0)
    assert beating.outcomes(*NAMES) == {"hit"}


def test_revoked_right_is_told(broker: KafkaBroker, followed: Mapping[str, FollowedTable]) -> None:
    """The dimension goes on without its cache, and says why; no other one is touched (E23)."""
    guarded, quiet = followed["guarded"], followed["quiet"]
    for each in (guarded, quiet):
        each.keep(*NAMES)
    asyncio.run(forbid_reading(broker.address, "guest", guarded.name))
    guarded.sidecar.wait_until_passed_by(guarded.name)
    until(lambda: REFUSED in reasons(guarded))
    during = [guarded.look_up(*NAMES), quiet.look_up(*NAMES)]
    log = guarded.sidecar.log
    asyncio.run(allow_reading(broker.address, "guest", guarded.name))
    guarded.keep(*NAMES)

    assert during == [FETCHED, [("hit", name) for name in NAMES.values()]]
    assert (REFUSED in log, GUEST_PASSWORD in log) == (True, False)


def reasons(planes: FollowedTable) -> str:
    """Why partitions are not found, and why those that were found are not read."""
    feed = planes.sidecar.freshness(planes.name)["feed"]
    return f"{[feed['last_error'], *(split['last_error'] for split in feed['splits'])]}"


def answers_until_hit(planes: FollowedTable) -> list[list[Answer]]:
    """Ask until all comes from the cache; all answers, the last one among them."""
    answers: list[list[Answer]] = []

    def is_all_hit() -> bool:
        answers.append(planes.look_up(*NAMES))
        return {outcome for outcome, _ in answers[-1]} == {"hit"}

    until(is_all_hit)
    return answers


@contextmanager
def outage(broker: KafkaBroker, fault: str) -> Iterator[None]:
    """The broker is frozen or dead meanwhile."""
    (broker.freeze if fault == "freeze" else broker.kill)()
    try:
        yield
    finally:
        (broker.thaw if fault == "freeze" else broker.start)()

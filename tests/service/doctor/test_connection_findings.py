"""Whether executors find room at a server."""

from dataclasses import replace

import pytest

from service.doctor.backends.database_check import connection_findings, judged
from service.doctor.backends.postgres_server import PostgresServer, Room
from service.doctor.check import Seen, ServerDemand
from service.doctor.finding import Finding
from service.doctor.sidecar.clock import ClockReading
from tests.service.doctor.findings import MATTER, severities

NOW = ClockReading(0.0, 0.0, 0.0)
SERVER = PostgresServer(160004, "16.4", "reader", "shop", NOW, Room(used=17), identity="5432")
OTHER = replace(SERVER, role="writer", database="store")


def found(server: PostgresServer, connections: int, executors: int | None = None) -> list[Finding]:
    """What is found of one address."""
    return list(connection_findings([ServerDemand("h", server, connections)], executors))


@pytest.mark.parametrize(
    ("room", "free"),
    [
        (Room(100, 3, used=17), 80),
        (Room(100, 3, used=17, of_sidecars=16), 96),
        (Room(100, 3, used=17, of_role=10, role_limit=50), 40),
        (Room(100, 3, used=17, of_sidecars=10, of_role=10, role_limit=50), 50),
        (Room(100, 3, used=17, of_database=5, database_limit=15), 10),
    ],
)
def test_tightest_room_counts(room: Room, free: int) -> None:
    """What is reserved or used by others is not free; what sidecars have now is theirs."""
    (finding,) = found(replace(SERVER, room=room), 1)

    assert finding.message.startswith(f"room for {free} executors: of {free} connections")


def test_superusers_have_what_is_reserved() -> None:
    """Limits of roles and databases do not hold for them either."""
    room = Room(100, 3, used=17, role_limit=1, database_limit=1)

    (finding,) = found(replace(SERVER, room=room, is_superuser=True), 1)

    assert finding.message.startswith("room for 83 executors")


@pytest.mark.parametrize(
    ("executors", "severity"),
    [(8, "ok"), (9, "warning"), (10, "warning"), (11, "error"), (None, "ok")],
)
def test_executors_must_find_room(executors: int | None, severity: str) -> None:
    """Of 80 free connections ten executors may have eight each; from four fifths on it is tight."""
    assert severities(found(SERVER, 8, executors)) == [severity]


def test_room_for_no_executor_is_an_error() -> None:
    """Without a number it is told how many fit; none is too few."""
    (fits,) = found(SERVER, 8)
    (none,) = found(SERVER, 81)

    assert fits.message == (
        "room for 10 executors: of 80 connections that are left for sidecars each takes 8"
    )
    assert (none.severity, "max_connections" in none.remedy) == ("error", True)


def test_one_executor_is_singular() -> None:
    """What is told reads as a sentence, also of a single one."""
    (fits,) = found(SERVER, 80)
    (wanted,) = found(SERVER, 8, 1)

    assert fits.message.startswith("room for 1 executor: ")
    assert wanted.message.startswith("1 executor wants 8 ")


def test_pooler_shares_connections_out() -> None:
    """Behind one, the server's limit says nothing."""
    assert severities(found(replace(SERVER, is_pooled=True), 8, 1000)) == ["skipped"]


def test_addresses_of_one_server_are_judged_together() -> None:
    """Whatever their hosts, roles and databases: what fits each alone may be too much for it."""
    demands = [ServerDemand("h/shop", SERVER, 8), ServerDemand("i/store", OTHER, 8)]

    (together,) = connection_findings(demands, 6)

    assert (together.subject, together.severity) == ("h/shop, i/store", "error")
    assert together.message == (
        "6 executors want 96 (16 connections for each executor), and there is room for 80, "
        "so for 5 executors"
    )


def test_other_servers_are_judged_apart() -> None:
    """Each has room of its own."""
    demands = [
        ServerDemand("h", SERVER, 8),
        ServerDemand("i", replace(OTHER, identity="5433"), 8),
    ]

    assert severities(connection_findings(demands, 6)) == ["ok", "ok"]


@pytest.mark.parametrize(("role", "severity"), [("writer", "ok"), ("reader", "error")])
def test_limit_of_a_role_counts_its_addresses(role: str, severity: str) -> None:
    """The connections of another role do not count against it."""
    limited = replace(SERVER, room=Room(used=17, role_limit=40))
    demands = [
        ServerDemand("h", limited, 8),
        ServerDemand("i", replace(limited, role=role, room=Room(used=17)), 8),
    ]

    assert severities(connection_findings(demands, 4)) == [severity]


def test_findings_come_before_what_is_judged() -> None:
    """What stands by itself stays as it is."""
    seen: list[Seen] = [ServerDemand("h", SERVER, 8), MATTER.ok("x")]

    assert [each.check for each in judged(seen, None)] == ["check", "connections"]

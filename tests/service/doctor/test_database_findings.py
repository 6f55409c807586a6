"""What a server's facts mean."""

from dataclasses import replace

import pytest

from service.doctor.clock import ClockReading
from service.doctor.database_findings import (
    Demand,
    connection_findings,
    free_connections,
    server_findings,
)
from service.doctor.finding import Finding
from service.doctor.postgres_server import PostgresServer, Room
from tests.service.doctor.findings import MATTER, severities

NOW = ClockReading(0.0, 0.0, 0.0)
SERVER = PostgresServer(160004, "16.4", "reader", "shop", NOW, Room(used=17))


def found(server: PostgresServer, *, says: bool = False, listens: bool = False) -> list[Finding]:
    """What is found of it."""
    return list(server_findings(MATTER, server, says_pgbouncer=says, listens=listens))


def bad(server: PostgresServer, *, says: bool = False, listens: bool = False) -> list[str]:
    """How bad what is not well is."""
    told = severities(found(server, says=says, listens=listens))
    return [severity for severity in told if severity != "ok"]


def test_plain_server_is_well() -> None:
    """A reader at a server of its own; listening is possible."""
    assert bad(SERVER) == bad(SERVER, listens=True) == []


@pytest.mark.parametrize(("version", "expected"), [(130000, []), (120099, ["error"])])
def test_oldest_version_is_13(version: int, expected: list[str]) -> None:
    """What is older than 13 is an error."""
    assert bad(replace(SERVER, version=version)) == expected


def test_too_powerful_roles_are_warnings() -> None:
    """A superuser, and who passes row-level security by."""
    assert bad(replace(SERVER, is_superuser=True)) == ["warning"]
    assert bad(replace(SERVER, bypasses_policies=True)) == ["warning"]


def test_standby_serves_lookups_only() -> None:
    """It is well without LISTEN, and an error with it."""
    standby = replace(SERVER, is_standby=True)

    assert (bad(standby), bad(standby, listens=True)) == ([], ["error"])


@pytest.mark.parametrize(
    ("is_pooled", "says", "listens", "expected"),
    [
        (False, False, False, []),
        (True, True, False, []),
        (True, False, False, ["error"]),
        (False, True, False, ["warning"]),
        (True, True, True, ["error"]),
    ],
)
def test_pooler_must_be_as_configured(
    *, is_pooled: bool, says: bool, listens: bool, expected: list[str]
) -> None:
    """One that nobody named is an error, one that is none a warning; through it nobody listens."""
    assert bad(replace(SERVER, is_pooled=is_pooled), says=says, listens=listens) == expected


def test_pooled_role_needs_a_time_limit() -> None:
    """The sidecar can set none behind a pooler; the remedy is a statement for the role."""
    endless = replace(SERVER, is_pooled=True, has_statement_timeout=False)

    assert bad(endless, says=True) == ["warning"]
    assert found(endless, says=True)[-1].remedy == (
        """ALTER ROLE "reader" SET statement_timeout = '10s'"""
    )


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
    assert free_connections(room, is_superuser=False) == free


def test_superusers_have_what_is_reserved() -> None:
    """Limits of roles and databases do not hold for them either."""
    room = Room(100, 3, used=17, role_limit=1, database_limit=1)

    assert free_connections(room, is_superuser=True) == 83


@pytest.mark.parametrize(
    ("executors", "severity"),
    [(8, "ok"), (9, "warning"), (10, "warning"), (11, "error"), (None, "ok")],
)
def test_executors_must_find_room(executors: int | None, severity: str) -> None:
    """Of 80 free connections ten executors may have eight each; from four fifths on it is tight."""
    (finding,) = connection_findings(MATTER, SERVER, Demand(8, executors))

    assert finding.severity == severity


def test_room_for_no_executor_is_an_error() -> None:
    """Without a number it is told how many fit; none is too few."""
    (fits,) = connection_findings(MATTER, SERVER, Demand(8))
    (none,) = connection_findings(MATTER, SERVER, Demand(81))

    assert fits.message == "room for 80 of sidecars: 10 executors (8 connections for each executor)"
    assert (none.severity, "max_connections" in none.remedy) == ("error", True)


def test_pooler_shares_connections_out() -> None:
    """Behind one, the server's limit says nothing."""
    pooled = replace(SERVER, is_pooled=True)

    assert severities(connection_findings(MATTER, pooled, Demand(8, 1000))) == ["skipped"]

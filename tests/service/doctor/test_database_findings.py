"""What a server's facts mean."""

from dataclasses import replace

import pytest

from service.doctor.backends.database_check import server_findings
from service.doctor.backends.postgres_server import PostgresServer, Room
from service.doctor.finding import Finding
from service.doctor.sidecar.clock import ClockReading
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

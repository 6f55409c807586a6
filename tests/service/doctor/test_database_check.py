"""The check of a database; a real one is in tests/integration/test_doctor_postgres.py."""

from service.connectors.postgres.settings import PostgresSettings
from service.doctor.backends.database_check import DatabaseCheck
from service.doctor.backends.postgres_server import PostgresPlace
from tests.service.doctor.findings import gathered


async def test_database_that_is_away_is_one_error() -> None:
    """It is told once, without a password, and nobody's tables are looked at."""
    settings = PostgresSettings("postgresql://me:secret@127.0.0.1:1/d", "t", ("id",))
    check = DatabaseCheck(PostgresPlace(settings, {}))

    (finding,) = await gathered(check.findings())

    assert (finding.severity, finding.subject) == ("error", "me@127.0.0.1:1/d")
    assert "secret" not in str(finding)
    assert check.server is None

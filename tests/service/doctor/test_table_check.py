"""The check of a table; real ones are in tests/integration/test_doctor_postgres.py."""

import asyncio

from service.connectors.postgres.settings import PostgresSettings
from service.doctor.backends.database_check import DatabaseCheck
from service.doctor.backends.postgres_server import PostgresPlace
from service.doctor.backends.table_check import TableCheck
from tests.service.config.configuration import table
from tests.service.doctor.findings import gathered


async def test_table_of_a_silent_database_is_skipped() -> None:
    """What the database's own finding tells is not told for each table again."""
    place = PostgresPlace(PostgresSettings("postgresql://h/d", "t", ("id",)), {})
    check = TableCheck("a", table(), DatabaseCheck(place), asyncio.Semaphore(1))

    (finding,) = await gathered(check.findings())

    assert (finding.severity, finding.remedy) == ("skipped", "see the finding of its database")

"""What a table's facts mean."""

from dataclasses import replace

import pyarrow as pa
import pytest

from service.config.cache import Cache
from service.connectors.postgres.table import KeySending, PostgresTable
from service.doctor.backends.table_check import (
    TableFacts,
    rights_findings,
    size_findings,
    table_findings,
)
from tests.service.doctor.findings import MATTER, severities

TABLE = PostgresTable("public", "t", (("id", KeySending(pa.field("id", pa.int32()), "int4")),), ())
WELL = TableFacts(uses_index=True)
MIB = 2**20


@pytest.mark.parametrize(
    ("uses_index", "is_required", "expected"),
    [
        (True, False, ["ok", "ok"]),
        (False, False, ["ok", "warning"]),
        (False, True, ["ok", "error"]),
    ],
)
def test_missing_index_is_told(*, uses_index: bool, is_required: bool, expected: list[str]) -> None:
    """It is an error where the configuration wants one."""
    facts = replace(WELL, uses_index=uses_index)

    assert severities(table_findings(MATTER, TABLE, facts, require_index=is_required)) == expected


def test_index_has_its_statement() -> None:
    """The remedy can be run as it is, while others write."""
    *_, finding = table_findings(MATTER, TABLE, TableFacts(uses_index=False), require_index=False)

    assert finding.remedy == 'CREATE INDEX CONCURRENTLY ON "public"."t" ("id")'


@pytest.mark.parametrize(
    ("facts", "is_superuser", "severity", "remedy"),
    [
        (WELL, False, "ok", ""),
        (replace(WELL, rights=("INSERT",)), True, "ok", ""),
        (
            replace(WELL, rights=("INSERT", "DELETE")),
            False,
            "warning",
            'REVOKE INSERT, DELETE ON "public"."t" FROM "me"',
        ),
        (replace(WELL, is_owner=True, rights=("INSERT",)), False, "warning", "use a role of its"),
    ],
)
def test_rights_to_change_are_told(
    facts: TableFacts,
    is_superuser: bool,  # noqa: FBT001
    severity: str,
    remedy: str,
) -> None:
    """Who owns the table, or may change it, may do too much; superusers are told of elsewhere."""
    (finding,) = rights_findings(MATTER, TABLE, facts, role="me", is_superuser=is_superuser)

    assert finding.severity == severity
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("mode", "size_bytes", "expected"),
    [
        ("full", 32 * MIB, []),
        ("full", 32 * MIB + 1, ["warning"]),
        ("partial", 64 * MIB, []),
    ],
)
def test_whole_table_must_fit(mode: str, size_bytes: int, expected: list[str]) -> None:
    """A table that is held whole is held against its cache, as far as that is scaled down."""
    cache = Cache.model_validate({"mode": mode, "max_bytes": "64MiB"})
    facts = replace(WELL, size_bytes=size_bytes)

    assert severities(size_findings(MATTER, facts, cache, scale=0.5)) == expected

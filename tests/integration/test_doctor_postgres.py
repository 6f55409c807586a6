"""The doctor before a real PostgreSQL: each fault has a remedy, and what it says helps."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.config.settings import Settings
from service.connectors.postgres.triggers import trigger_sql
from service.doctor.backends.database_check import combined_findings
from service.doctor.check_runner import run_checks
from service.doctor.finding import Finding, Severity
from service.doctor.plan import Configured, Deployment, plan
from tests.integration.fault_proxy import FaultProxy
from tests.integration.pgbouncer import PgBouncer, pgbouncer
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    running_postgres,
    running_standby,
)

READER = "doctor_reader"
TABLE = "CREATE TABLE customers (id int PRIMARY KEY, name text)"
GRANT = f"GRANT SELECT ON customers TO {READER}"


@pytest.fixture
def shop(database: Database) -> Database:
    """A database with a table that a role may read, and nothing besides."""
    known = database.query("SELECT 1 FROM pg_roles WHERE rolname = %s", [READER])
    database.execute(TABLE, *([] if known else [f"CREATE ROLE {READER} LOGIN"]), GRANT)
    return database


def settings_of(dsn: str, *, source: dict[str, Any] | None = None, **more: object) -> Settings:
    """One dimension of the table."""
    table = {"kind": "postgres", "dsn": dsn, "table": "public.customers", **(source or {})}
    return Settings({"dimensions": {"customers": {"source": table, "key": ["id"], **more}}})


async def examined(settings: Settings, deployment: Deployment | None = None) -> list[Finding]:
    """What the doctor finds, without a sidecar."""
    configured = Configured(Path("sidelook.yaml"), settings)
    deployment = deployment or Deployment(kubernetes="1.31")
    results = await run_checks(plan(configured, None, deployment))
    return combined_findings(results, deployment.executors)


async def bad(settings: Settings, deployment: Deployment | None = None) -> list[Finding]:
    """What of it is not well."""
    found = await examined(settings, deployment)
    return [finding for finding in found if finding.severity is not Severity.OK]


async def run(database: Database, *statements: str) -> None:
    """Do what a remedy says, as the owner."""
    await asyncio.to_thread(database.execute, *statements)


async def test_healthy_table_has_no_finding(shop: Database) -> None:
    """Nothing is wrong where a role may read a table with a key, and do nothing else."""
    found = await examined(settings_of(shop.dsn(user=READER)))

    assert {finding.severity for finding in found} == {Severity.OK}
    assert {finding.check for finding in found} >= {
        *("database", "pgbouncer", "connections", "clock", "table", "index", "privileges"),
    }


async def test_missing_table_is_named(shop: Database) -> None:
    """A misspelt table is an error; the remedy is the nearest name."""
    wrong = settings_of(shop.dsn(user=READER), source={"table": "public.customer"})

    (finding,) = await bad(wrong)

    assert finding == Finding(
        "table",
        "customers",
        Severity.ERROR,
        "public.customer: no such table",
        "did you mean public.customers?",
    )


async def test_missing_index_is_mended_by_its_remedy(shop: Database) -> None:
    """A key without an index is a warning whose remedy is a statement; after it, all is well."""
    await run(shop, "ALTER TABLE customers DROP CONSTRAINT customers_pkey")
    settings = settings_of(shop.dsn(user=READER))

    (finding,) = await bad(settings)
    await run(shop, finding.remedy)

    assert (finding.check, finding.severity) == ("index", Severity.WARNING)
    assert await bad(settings) == []


async def test_required_index_is_an_error(shop: Database) -> None:
    """What require_index refuses is an error, not a warning."""
    await run(shop, "ALTER TABLE customers DROP CONSTRAINT customers_pkey")

    (finding,) = await bad(settings_of(shop.dsn(user=READER), source={"require_index": True}))

    assert (finding.check, finding.severity) == ("index", Severity.ERROR)


async def test_missing_privilege_is_mended_by_its_remedy(shop: Database) -> None:
    """A role that may not read is an error whose remedy is a statement; after it, all is well."""
    await run(shop, f"REVOKE ALL ON customers FROM {READER}")
    settings = settings_of(shop.dsn(user=READER))

    (finding,) = await bad(settings)
    await run(shop, *finding.remedy.split("; "))

    assert (finding.check, finding.severity) == ("table", Severity.ERROR)
    assert await bad(settings) == []


async def test_missing_triggers_are_mended_by_their_remedy(shop: Database) -> None:
    """LISTEN without triggers is an error; once what it names has run, notifications come back."""
    settings = settings_of(shop.dsn(user=READER), refresh={"listen": {}})

    (finding,) = await bad(settings)
    await run(shop, trigger_sql("public.customers", ["id"], channel="sidelook_customers"))

    assert (finding.check, finding.severity) == ("listen", Severity.ERROR)
    assert "gen-triggers customers --config" in finding.remedy
    assert await bad(settings) == []


async def test_rights_to_write_are_a_warning(shop: Database) -> None:
    """A role that may change the table is one too powerful; REVOKE mends it."""
    await run(shop, f"GRANT INSERT, DELETE ON customers TO {READER}")
    settings = settings_of(shop.dsn(user=READER))

    (finding,) = await bad(settings)
    await run(shop, finding.remedy)

    assert (finding.check, finding.severity) == ("privileges", Severity.WARNING)
    assert await bad(settings) == []


async def test_superuser_is_a_warning(shop: Database) -> None:
    """It is told once, and not for each table again."""
    (finding,) = await bad(settings_of(shop.dsn()))

    assert (finding.check, finding.severity) == ("database", Severity.WARNING)
    assert finding.message == "role postgres is a superuser; a sidecar needs SELECT only"


async def test_password_is_never_told(shop: Database) -> None:
    """Findings hold neither the password of a DSN nor the DSN."""
    found = await examined(settings_of(shop.dsn(user=READER, password="opens-sesame")))

    assert "opens-sesame" not in str(found)


async def test_full_server_is_an_error(shop: Database) -> None:
    """More executors than connections are an error; without a number, it is told how many fit."""
    settings = settings_of(shop.dsn(user=READER))

    (finding,) = await bad(settings, Deployment(kubernetes="1.31", executors=50))
    (fits,) = (each for each in await examined(settings) if each.check == "connections")

    assert (finding.check, finding.severity) == ("connections", Severity.ERROR)
    assert finding.message.startswith("50 executors open 400 (8 connections for each executor)")
    assert fits.message.endswith("each executor opens 8")


async def test_addresses_of_one_server_are_added_up(shop: Database) -> None:
    """Another user, or other parameters, lead to the same server: it has room once."""
    dsns = (shop.dsn(user=READER), shop.dsn())
    sources = [{"kind": "postgres", "dsn": dsn, "table": "public.customers"} for dsn in dsns]
    settings = Settings(
        {"dimensions": {f"d{n}": {"source": each, "key": ["id"]} for n, each in enumerate(sources)}}
    )

    (finding,) = (each for each in await examined(settings) if each.check == "connections")

    assert finding.message.endswith("each executor opens 16")


async def test_limit_of_a_role_counts(shop: Database) -> None:
    """A role with fewer connections than one executor needs is an error that names it."""
    await run(shop, f"ALTER ROLE {READER} CONNECTION LIMIT 5")
    try:
        (finding,) = await bad(settings_of(shop.dsn(user=READER)))
    finally:
        await run(shop, f"ALTER ROLE {READER} CONNECTION LIMIT -1")

    assert (finding.check, finding.severity) == ("connections", Severity.ERROR)
    assert "ALTER ROLE" in finding.remedy


async def test_view_is_refused_with_its_reason(shop: Database) -> None:
    """What has no key is refused as the sidecar would, with what to name instead."""
    await run(shop, "CREATE VIEW recent AS TABLE customers")

    (finding,) = await bad(settings_of(shop.dsn(user=READER), source={"table": "recent"}))

    assert finding.message == "recent: is a view, whose rows have no key"
    assert finding.remedy == "name the table"


async def test_unfit_default_is_an_error(shop: Database) -> None:
    """A default row that names a column which the table does not have is found before the start."""
    (finding,) = await bad(settings_of(shop.dsn(user=READER), default={"nam": "unknown"}))

    assert (finding.check, finding.severity) == ("table", Severity.ERROR)
    assert "did you mean name?" in finding.remedy


async def test_locked_table_is_told_in_time(shop: Database) -> None:
    """A table that others lock costs its own finding, and not those of its server."""
    with shop.locked("customers"):
        began_s = time.monotonic()
        (finding,) = await bad(settings_of(shop.dsn(user=READER)))

    assert (finding.check, finding.severity) == ("table", Severity.ERROR)
    assert time.monotonic() - began_s < 15.0


async def test_silent_database_is_told_in_time(
    shop: Database, postgres_server: PostgresServer
) -> None:
    """A network that swallows everything ends in findings, within a quarter of a minute."""
    async with FaultProxy(postgres_server.socket_path) as proxy:
        proxy.hold()
        began_s = time.monotonic()
        found = await bad(settings_of(proxy.dsn(shop.name)))

    assert time.monotonic() - began_s < 15.0
    assert [(each.check, each.severity) for each in found] == [
        ("database", Severity.ERROR),
        ("table", Severity.SKIPPED),
    ]


@pytest.fixture
def bouncer(tmp_path: Path, shop: Database, postgres_server: PostgresServer) -> Iterator[PgBouncer]:
    """A PgBouncer before the database."""
    try:
        with pgbouncer(tmp_path, shop, system_user=postgres_server.system_user) as bouncer:
            yield bouncer
    except ToolUnavailable as error:
        pytest.skip(str(error))


async def test_pooler_that_nobody_named_is_found(bouncer: PgBouncer) -> None:
    """A PgBouncer at the address is an error until the configuration says so."""
    (found,) = [
        each
        for each in await bad(settings_of(bouncer.dsn))
        if each.check == "pgbouncer" and each.severity is Severity.ERROR
    ]
    named = await bad(settings_of(bouncer.dsn, source={"pgbouncer": True}))

    assert found.remedy == "set source.pgbouncer: true, or name the server itself"
    # The role has no time limit of its own, and connections are the pooler's.
    assert {(each.check, each.severity) for each in named} == {
        ("database", Severity.WARNING),
        ("pgbouncer", Severity.WARNING),
        ("connections", Severity.SKIPPED),
    }


async def test_pooler_that_is_none_is_a_warning(shop: Database) -> None:
    """`pgbouncer: true` before the server itself is told, with what it costs."""
    found = await bad(settings_of(shop.dsn(user=READER), source={"pgbouncer": True}))

    assert {each.check for each in found} == {"pgbouncer"}
    assert "leave source.pgbouncer out, or name the PgBouncer" in {each.remedy for each in found}


async def test_standby_cannot_be_listened_to() -> None:
    """A standby serves lookups; LISTEN there is an error of the database and of the table."""
    with running_postgres() as primary:
        shop = primary.new_database()
        shop.execute(TABLE)
        with running_standby(primary) as folder:
            dsn = f"postgresql://postgres@/{shop.name}?host={folder}"
            plain = await bad(settings_of(dsn))
            listening = await bad(settings_of(dsn, refresh={"listen": {}}))

    assert [each.severity for each in plain] == [Severity.WARNING]  # a superuser
    errors = {each.check for each in listening if each.severity is Severity.ERROR}
    assert errors == {"database", "listen"}

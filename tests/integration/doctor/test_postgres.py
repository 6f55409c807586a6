"""The doctor's findings on a real PostgreSQL, and the effect of their remedies."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from service.config.settings import Settings
from service.connectors.postgres.triggers import trigger_sql
from service.doctor.backends.database_check import combined_findings
from service.doctor.check_runner import ended_checks
from service.doctor.deployment.spark_check import Deployment
from service.doctor.finding import Finding, Severity
from service.doctor.plan import Configured, plan
from tests.integration.lookups.tables import create_reader
from tests.integration.pgbouncer import PgBouncer
from tests.integration.subscriptions import subscribed
from tests.service.config.configuration import parsed
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    running_postgres,
    running_standby,
)

# {trouble: statements, the only finding, its remedy, and what mends it: that remedy, if empty}
TROUBLES = parsed((Path(__file__).parent / "troubles.yaml").read_text())
PATIENCE_S = 60.0  # a test that waits longer has failed
TABLE = "CREATE TABLE customers (id int PRIMARY KEY, name text)"
TRIGGERS = trigger_sql("public.customers", ["id"], channel="sidelook_customers")
# Without a socket: whether the machine has its folder is no finding about the database.
LISTEN = {"unix": None, "http": "127.0.0.1:8815"}
DATABASE_CHECKS = {
    *("database", "pgbouncer", "connections", "clock", "table", "index", "privileges")
}


@pytest.fixture
def shop(database: Database) -> Database:
    """A database with a table `customers`, which a role may read."""
    database.execute(TABLE)
    create_reader(database, table="customers")
    return database


def reader_of(shop: Database) -> str:
    """The DSN of that role."""
    return shop.dsn(user=f"reader_of_{shop.name}")


def settings_of(dsn: str, *, source: dict[str, Any] | None = None, **more: object) -> Settings:
    """The configuration of one dimension of the table."""
    table = {"kind": "postgres", "dsn": dsn, "table": "public.customers", **(source or {})}
    dimension = {"source": table, "key": ["id"], **more}
    return Settings({"listen": LISTEN, "dimensions": {"customers": dimension}})


async def findings(settings: Settings, executors: int | None = None) -> list[Finding]:
    """The findings without a sidecar."""
    configured = Configured(Path("sidelook.yaml"), settings)
    deployment = Deployment(kubernetes="1.31", executors=executors)
    async with asyncio.timeout(PATIENCE_S):
        groups = plan(configured, None, deployment)
        ended = [results for group in groups async for _, results in ended_checks(group)]
    return combined_findings([result for results in ended for result in results], executors)


async def faults(settings: Settings, executors: int | None = None) -> list[Finding]:
    """The findings that are not OK."""
    found = await findings(settings, executors)
    return [finding for finding in found if finding.severity is not Severity.OK]


async def test_healthy_table_is_ok(shop: Database) -> None:
    """A table with a key that a role may only read passes all checks; no password is shown."""
    found = await findings(settings_of(reader_of(shop)))
    dsn = shop.dsn(user=f"reader_of_{shop.name}", password="opens-sesame")

    assert {finding.severity for finding in found} == {Severity.OK}
    assert {finding.check for finding in found} >= DATABASE_CHECKS
    assert "opens-sesame" not in str(await findings(settings_of(dsn)))


@pytest.mark.parametrize("trouble", TROUBLES)
async def test_trouble_is_mended_by_its_remedy(shop: Database, trouble: str) -> None:
    """A finding has a remedy, after which the table passes all checks."""
    case, role = TROUBLES[trouble], f"reader_of_{shop.name}"
    settings = settings_of(reader_of(shop), **case.get("options", {}))
    shop.execute(*(each.format(role) for each in case["statements"]))

    (finding,) = await faults(settings)

    assert (finding.check, finding.severity) == (case["check"], case["severity"])
    assert case["remedy"] in finding.remedy
    if "mended_by" in case:
        by_remedy = finding.remedy.split("; ")
        mending = [each.format(role) for each in case["mended_by"]] or by_remedy
        await asyncio.to_thread(shop.execute, *mending)
        assert await faults(settings) == []


@pytest.mark.parametrize(
    ("function", "check", "severity"),
    [
        *[
            (each, "database", Severity.WARNING)
            for each in (
                *("pg_control_system()", "pg_is_in_recovery()", "pg_postmaster_start_time()"),
                *("pg_current_wal_lsn()", "pg_walfile_name(pg_lsn)"),
            )
        ],
        ("pg_stat_get_activity(integer)", "connections", Severity.SKIPPED),
        ("aclexplode(aclitem[])", "privileges", Severity.SKIPPED),
        ("has_table_privilege(oid, text)", "privileges", Severity.SKIPPED),
    ],
)
async def test_revoked_function_is_named(
    shop: Database, function: str, check: str, severity: Severity
) -> None:
    """A function that the role may not execute restricts one check only."""
    settings = settings_of(reader_of(shop))
    shop.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM public")

    (finding,) = await faults(settings)
    await asyncio.to_thread(shop.execute, f"GRANT EXECUTE ON FUNCTION {function} TO public")

    assert (finding.check, finding.severity) == (check, severity)
    assert (function if check == "database" else function.partition("(")[0]) in finding.remedy
    assert await faults(settings) == []


async def test_triggers_are_tried(shop: Database) -> None:
    """Missing triggers are an error, with the command that prints them; they mend it."""
    settings = settings_of(reader_of(shop), refresh={"listen": {}})
    (missing,) = await faults(settings)
    await asyncio.to_thread(shop.execute, TRIGGERS)

    assert (missing.check, missing.severity) == ("listen", Severity.ERROR)
    assert "gen-triggers customers --config" in missing.remedy
    assert await faults(settings) == []


async def test_other_relations_are_checked(shop: Database) -> None:
    """Views, queries and partitioned tables are found, with the index remedy of their kind."""
    shop.execute(
        "CREATE VIEW shown AS SELECT id, name FROM customers WHERE name <> ''",
        "CREATE VIEW counted AS SELECT name AS id, count(*) AS number FROM customers GROUP BY 1",
        "CREATE TABLE parted (id int, name text) PARTITION BY LIST (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
        f"GRANT SELECT ON shown, counted, parted TO reader_of_{shop.name}",
    )
    query = {"kind": "postgres", "dsn": reader_of(shop), "query": "SELECT id, name FROM customers"}
    dimensions = {"customers": {"source": query, "key": ["id"]}}
    by_query = Settings({"listen": LISTEN, "dimensions": dimensions})

    found = [
        *(await faults(settings_of(reader_of(shop), source={"table": "shown"}))),
        *(await faults(by_query)),
        *(await faults(settings_of(reader_of(shop), source={"table": "counted"}))),
        *(await faults(settings_of(reader_of(shop), source={"table": "parted"}))),
    ]

    counted, parted, key = found
    assert [each.check for each in found] == ["index", "index", "key"]
    assert counted.remedy.startswith("create an index on the table column")
    assert parted.remedy == 'CREATE INDEX ON "public"."parted" ("id")'
    assert key.remedy.startswith('CREATE UNIQUE INDEX ON "public"."parted" ("id"); or')


@pytest.mark.parametrize(
    ("key", "check"),
    [
        (("a", "b", "c"), "ok"),
        (("a",), "warning"),
        (("c",), "warning"),  # unique in a part of the table
        (("d",), "warning"),  # an expression of it is unique
    ],
)
async def test_key_is_covered_by_a_unique_index(
    shop: Database, key: tuple[str, ...], check: str
) -> None:
    """A key is unique if a whole unique index has no other columns, included ones excepted."""
    shop.execute(
        "CREATE TABLE items (a int, b int, c int, d text, name text)",
        "CREATE UNIQUE INDEX ON items (b, a) INCLUDE (name)",
        "CREATE UNIQUE INDEX ON items (c) WHERE c > 0",
        "CREATE UNIQUE INDEX ON items (lower(d))",
        f"GRANT SELECT ON items TO reader_of_{shop.name}",
    )
    settings = settings_of(reader_of(shop), source={"table": "items"}, key=key)

    (found,) = [each for each in await findings(settings) if each.check == "key"]

    assert found.severity == check


@pytest.mark.parametrize(
    ("statement", "options"),
    [
        ("CREATE VIEW items AS TABLE customers", {}),
        ("CREATE TABLE items (LIKE customers)", {"match": "all"}),
        ("CREATE TABLE items (LIKE customers)", {"source": {"table": "items", "where": "id > 0"}}),
        ("CREATE TABLE items (LIKE customers) PARTITION BY LIST (name)", {}),
        ("CREATE TABLE items (LIKE customers); CREATE TABLE heir () INHERITS (items)", {}),
    ],
    ids=["view", "several rows", "filter", "other partitions", "heirs"],
)
async def test_unknown_uniqueness_is_no_finding(
    shop: Database, statement: str, options: dict[str, Any]
) -> None:
    """Nothing is reported of keys that may be unique without an index, or need not be."""
    shop.execute(statement, f"GRANT SELECT ON items TO reader_of_{shop.name}")
    settings = settings_of(reader_of(shop), **{"source": {"table": "items"}, **options})

    found = {each.check: each.severity for each in await findings(settings)}

    assert (found["table"], "key" in found) == (Severity.OK, False)


async def test_right_of_an_owner_is_named(shop: Database) -> None:
    """A view whose owner may not read its table has the grant for the owner."""
    owner = f"owner_of_{shop.name}"
    shop.execute(
        f"CREATE ROLE {owner}",
        "CREATE VIEW shown AS TABLE customers",
        f"ALTER VIEW shown OWNER TO {owner}",
        f"GRANT SELECT ON shown TO reader_of_{shop.name}",
    )

    (finding,) = await faults(settings_of(reader_of(shop), source={"table": "shown"}))

    assert finding.remedy.startswith('GRANT SELECT ON "customers" TO the owner of public.shown')


async def test_partition_without_triggers_is_named(shop: Database) -> None:
    """A partitioned table needs its own triggers, and each of its partitions has them."""
    shop.execute(
        "CREATE TABLE parted (id int PRIMARY KEY, name text) PARTITION BY LIST (id)",
        "CREATE TABLE part PARTITION OF parted DEFAULT",
        f"GRANT SELECT ON parted TO reader_of_{shop.name}",
    )
    settings = settings_of(
        reader_of(shop), source={"table": "public.parted"}, refresh={"listen": {}}
    )
    (missing,) = await faults(settings)
    script = trigger_sql("public.parted", ["id"], channel="sidelook_customers", is_partitioned=True)
    shop.execute(script)
    mended = await faults(settings)
    shop.execute("ALTER TABLE part DISABLE TRIGGER ALL")
    (disabled,) = await faults(settings)

    assert (missing.check, mended) == ("listen", [])
    assert "--partitioned" in missing.remedy
    assert "on part" in disabled.message


async def test_subscribed_table_needs_a_changelog(followed_server: PostgresServer) -> None:
    """Triggers of statements on a table that a subscription fills are a warning."""
    publisher, subscriber = followed_server.new_database(), followed_server.new_database()
    publisher.execute(TABLE)
    subscriber.execute(TABLE, TRIGGERS)
    settings = settings_of(subscriber.dsn(), refresh={"listen": {}})
    with subscribed(subscriber, publisher, "customers"):
        found = await findings(settings)

    (listen,) = [each for each in found if each.check == "listen"]
    assert listen == Finding(
        *("listen", "customers", Severity.WARNING),
        "public.customers is filled by a subscription, which fires no triggers of statements",
        "follow the publisher with refresh.changelog, or remove refresh.listen",
    )


async def test_locked_table_fails_its_check_only(shop: Database) -> None:
    """A locked table is an error of the table, not of its server."""
    with shop.locked("customers"):
        (finding,) = await faults(settings_of(reader_of(shop)))

    assert (finding.check, finding.severity) == ("table", Severity.ERROR)


async def test_unnamed_pooler_is_an_error(shop: Database, bouncer: PgBouncer) -> None:
    """A PgBouncer is an error unless configured, and a configured one that is none a warning."""
    unnamed = await faults(settings_of(bouncer.dsn))
    named = await faults(settings_of(bouncer.dsn, source={"pgbouncer": True}))
    without = await faults(settings_of(reader_of(shop), source={"pgbouncer": True}))

    errors = [each for each in unnamed if each.severity is Severity.ERROR]
    assert [(each.check, "source.pgbouncer: true" in each.remedy) for each in errors] == [
        ("pgbouncer", True)
    ]
    assert {(each.check, each.severity) for each in named} == {
        ("database", Severity.WARNING),
        ("pgbouncer", Severity.WARNING),  # the role has no statement timeout
        ("connections", Severity.SKIPPED),  # connections are those of the pooler
    }
    assert {each.check for each in without} == {"pgbouncer"}


async def test_standby_cannot_be_listened_to() -> None:
    """A standby serves lookups; `refresh.listen` on it is an error."""
    with running_postgres() as primary:
        shop = primary.new_database()
        shop.execute(TABLE)
        with running_standby(primary) as folder:
            dsn = f"postgresql://postgres@/{shop.name}?host={folder}"
            plain = await faults(settings_of(dsn))
            listening = await faults(settings_of(dsn, refresh={"listen": {}}))

    assert [each.severity for each in plain] == [Severity.WARNING]  # a superuser
    errors = {each.check for each in listening if each.severity is Severity.ERROR}
    assert errors == {"database", "listen"}

"""Foreign tables: lookups with one query of the foreign server, loads, and refused feeds."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.errors import BackendError, ErrorCode
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot
from tests.integration.lookups.tables import PATIENCE_S, described, names_of, schema_of
from tests.service.connectors.source_contract import SourceCase, read_all, splits_of
from tools.processes.postgres_server import Database, PostgresServer

ROWS = 2_000
CONTRIB = sorted(Path("/usr/lib/postgresql").glob("*/lib/postgres_fdw.so"))  # of Debian


@pytest.fixture(scope="module")
def contrib_server(postgres_server: PostgresServer) -> Iterator[Database]:
    """The first database of a server with contrib modules, which the wheel's server lacks."""
    if not CONTRIB:
        pytest.skip("no postgres_fdw below /usr/lib/postgresql: apt-get install postgresql")
    programs, user = CONTRIB[-1].parents[1] / "bin", postgres_server.system_user
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="sidelook-fdw-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        if user is not None:
            shutil.chown(folder, user)
        data = str(folder / "data")

        def run(program: str, *arguments: str) -> None:
            command = [str(programs / program), "-D", data, *arguments]
            with (folder / "output").open("ab") as output:
                subprocess.run(command, check=True, user=user, cwd=folder, stdout=output)

        run("initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses= -c fsync=off -c log_statement=all"
        run("pg_ctl", "start", "-w", "-o", options, "-l", str(folder / "log"))
        stack.callback(run, "pg_ctl", "stop", "-m", "immediate")
        yield Database(str(folder), "postgres")


@pytest.fixture(scope="module")
def foreign(contrib_server: Database) -> Database:
    """A database with foreign tables of another one, also as a partition and behind a view."""
    folder = contrib_server.socket_folder
    near, far = (Database(folder, name) for name in ("near", "far"))
    contrib_server.execute("CREATE DATABASE near", "CREATE DATABASE far")
    far.execute(
        "CREATE TABLE t (id int PRIMARY KEY, name text)",
        f"INSERT INTO t SELECT i, 'name ' || i FROM generate_series(1, {ROWS}) AS i",
    )
    options = "SERVER far OPTIONS (table_name 't')"
    address = f"host '{folder}', dbname 'far'"
    near.execute(
        "CREATE EXTENSION postgres_fdw",
        f"CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS ({address})",
        "CREATE USER MAPPING FOR public SERVER far OPTIONS (user 'postgres')",
        f"CREATE FOREIGN TABLE t (id int, name text) {options}",
        "CREATE VIEW shown AS TABLE t",
        "CREATE TABLE parted (id int, name text) PARTITION BY RANGE (id)",
        f"CREATE FOREIGN TABLE old PARTITION OF parted FOR VALUES FROM (0) TO (5000) {options}",
        "CREATE TABLE new PARTITION OF parted FOR VALUES FROM (5000) TO (9000)",
        "CREATE INDEX ON new (id)",
        "INSERT INTO new VALUES (7000, 'name 7000')",
    )
    return near


def settings_of(database: Database, table: str = "t") -> PostgresSettings:
    """The relation by its key `id`."""
    return PostgresSettings(database.dsn(), table, ("id",), max_connections=1)


def logged(database: Database) -> str:
    """The statements in the server's log."""
    return Path(database.socket_folder, "log").read_text(errors="replace")


@pytest.mark.parametrize(
    ("table", "names"),
    [
        ("t", ["name 2", "name 1"]),
        ("shown", ["name 2", "name 1"]),
        ("parted", ["name 2", "name 7000", "name 1"]),
    ],
)
async def test_foreign_server_receives_one_query(
    foreign: Database, table: str, names: list[str]
) -> None:
    """A batch costs one query of the foreign server, which has the condition on the keys."""
    before = logged(foreign)
    async with described(settings_of(foreign, table)) as backend:
        found = await names_of(backend, 2, 7000, 1, 9999)

        assert (sorted(found), backend.uses_index) == (sorted(names), None)
    queries = logged(foreign)[len(before) :]
    assert queries.count("WHERE ((id = ANY ($1::integer[])))") == 1


async def test_foreign_index_cannot_be_required(foreign: Database) -> None:
    """A required index of a foreign server is refused, because its plan does not show it."""
    async with PostgresBackend(replace(settings_of(foreign), require_index=True)) as backend:
        with pytest.raises(BackendError, match="leave require_index out"):
            await backend.describe(timeout_s=PATIENCE_S)


@pytest.mark.parametrize(("table", "reason"), [("t", "foreign"), ("parted", "partition old")])
async def test_feed_of_foreign_rows_is_refused(foreign: Database, table: str, reason: str) -> None:
    """A feed of a foreign table, or of one with a foreign partition, is refused."""
    async with PostgresBackend(replace(settings_of(foreign, table), is_followed=True)) as backend:
        with pytest.raises(BackendError) as caught:
            await backend.describe(timeout_s=PATIENCE_S)

    assert (caught.value.code, reason in caught.value.detail) == (ErrorCode.TABLE_UNAVAILABLE, True)


@pytest.mark.parametrize("table", ["t", "shown", "parted"])
async def test_foreign_rows_are_loaded_as_a_stream(foreign: Database, table: str) -> None:
    """Foreign rows are loaded by one session, because other sessions see other rows."""
    settings = settings_of(foreign, table)
    schema = await schema_of(settings)
    case = SourceCase(PostgresSnapshot(settings, page_bytes=16 * 1024), schema)
    async with splits_of(case) as splits:
        read = await read_all(case, splits)
    (changes,) = read.changes.values()

    assert len(changes) == ROWS + (table == "parted")


async def test_lost_foreign_server_frees_the_connection(foreign: Database) -> None:
    """While the foreign server is away, fetches fail; then the connections work again."""
    keys = pa.record_batch({"id": pa.array([1], pa.int32())})
    async with described(settings_of(foreign)) as backend:
        foreign.execute("ALTER SERVER far OPTIONS (SET host '/nowhere')")
        for _ in range(3):
            with pytest.raises(BackendError) as caught:
                await backend.fetch(keys, timeout_s=PATIENCE_S)
            assert caught.value.code is ErrorCode.CONNECTION_LOST
        foreign.execute(f"ALTER SERVER far OPTIONS (SET host '{foreign.socket_folder}')")

        assert await names_of(backend, 1) == ["name 1"]


async def test_other_foreign_schema_has_a_remedy(foreign: Database) -> None:
    """A column or a right that is missing on the foreign server is no change of the table here."""
    far = Database(foreign.socket_folder, "far")
    far.execute("CREATE TABLE own (id int, name text)", "CREATE ROLE other LOGIN")
    foreign.execute("CREATE FOREIGN TABLE own (id int, name text) SERVER far")
    keys = pa.record_batch({"id": pa.array([1], pa.int32())})
    user = "ALTER USER MAPPING FOR public SERVER far OPTIONS (SET user '{}')"
    failures = []
    async with described(settings_of(foreign, "own")) as backend:
        for change, undo in (
            ((foreign, user.format("other")), (foreign, user.format("postgres"))),
            ((far, "ALTER TABLE own DROP COLUMN name"), (far, "DROP TABLE own")),
        ):
            change[0].execute(change[1])
            with pytest.raises(BackendError) as caught:
                await backend.fetch(keys, timeout_s=PATIENCE_S)
            undo[0].execute(undo[1])
            failures.append((caught.value.code, caught.value.detail))

    assert failures == [
        (
            ErrorCode.FORBIDDEN,
            (
                "own: the role of the user mapping may not read the table of the foreign server:"
                " permission denied for table own"
            ),
        ),
        (
            ErrorCode.BACKEND_REJECTED,
            (
                "own: the table of the foreign server does not fit the foreign table; alter one of"
                ' them: column "name" does not exist'
            ),
        ),
    ]

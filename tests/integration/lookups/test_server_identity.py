"""Servers that replace each other at one address, and servers that name no part of themselves."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from itertools import count, cycle
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from lookup_core.changelog.change_decoder import TableChange
from lookup_core.errors import BackendError
from lookup_core.freshness.server_identity import ServerIdentity
from lookup_core.settings import CacheMode, CacheSettings
from lookup_core.sources.splits import Split
from lookup_core.statistics import InvalidationOrigin, LoadResult
from service.connectors.ports.source import SplitPiece
from service.connectors.postgres import connections
from service.connectors.postgres.backend import PostgresBackend
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.snapshot import PostgresSnapshot
from service.connectors.postgres.table import WatchedTable
from service.engine.dimension import Dimension
from service.engine.refresher import RefreshSources
from tests.integration.lookups.tables import (
    PATIENCE_S,
    create_reader,
    described,
    put_table,
    serving,
)
from tests.integration.pgbouncer import PgBouncer, pgbouncer
from tests.service.connectors.fake_source import FakeSource
from tests.service.engine import running
from tests.service.engine.refreshing import load_of, until_whole
from tests.service.engine.running import lookup, typed
from tools.debian import ToolUnavailable
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    ServerCopy,
    copied_server,
    running_postgres,
)

ROWS = pa.table({"id": pa.array([1, 2]), "name": ["one", "two"]})
KEY = pa.record_batch({"id": [1]})
UPDATE = "UPDATE dimension SET name = '{}' WHERE id = 1"
# As managed services do: the functions exist, and fail; or they do not exist.
_FAIL = """
ALTER FUNCTION pg_catalog.{name}() RENAME TO {name}_builtin; CREATE FUNCTION pg_catalog.{name}()
RETURNS {result} LANGUAGE plpgsql AS
$$BEGIN RAISE EXCEPTION 'wal_level must be set to logical' USING ERRCODE = '{state}';END$$"""
_HIDE = "ALTER FUNCTION pg_catalog.{name}() RENAME TO {name}_builtin"
_FORBID = "REVOKE EXECUTE ON FUNCTION pg_catalog.{name}() FROM PUBLIC"
CONTROL_FILE = [
    ("pg_control_system", "TABLE (system_identifier bigint)"),
    ("pg_control_checkpoint", "TABLE (timeline_id integer)"),
    ("pg_control_recovery", "TABLE (min_recovery_end_timeline integer)"),
]
ALL = [
    *CONTROL_FILE,
    ("pg_is_in_recovery", "boolean"),
    ("pg_current_wal_lsn", "pg_lsn"),
    ("pg_postmaster_start_time", "timestamptz"),
]


@pytest.fixture(autouse=True)
def _identified_by_each_query(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each query identifies its server: no test waits for a second to pass."""
    monkeypatch.setattr(connections, "IDENTITY_S", 0.0)


@pytest.fixture
def primary() -> Iterator[PostgresServer]:
    """A server of this test, which may be stopped."""
    with running_postgres() as server:
        yield server


def table_of(server: PostgresServer) -> tuple[Database, PostgresSettings]:
    """A new database with the table."""
    database = server.new_database()
    return database, put_table(database, ROWS, key=["id"])


def promoted_database(standby: ServerCopy, database: Database) -> Database:
    """The database of a standby that is promoted now, and whose row is "new" afterwards."""
    standby.promote()
    promoted = standby.database(database.name)
    promoted.execute(UPDATE.format("new"))
    return promoted


def several(*folders: str, attributes: str, database: Database) -> str:
    """The DSN of several servers."""
    hosts = f"host={','.join(folders)}&port={','.join(['5432'] * len(folders))}"
    return f"postgresql://postgres@/{database.name}?{hosts}&target_session_attrs={attributes}"


@asynccontextmanager
async def cached(settings: PostgresSettings) -> AsyncIterator[Dimension]:
    """A dimension that has cached the row of key 1."""
    async with serving(PostgresBackend(settings)) as dimension:
        await lookup(dimension, 1, timeout_s=PATIENCE_S)
        assert (await lookup(dimension, 1))[0].startswith("hit ")
        yield dimension


async def names_after_switch(dimension: Dimension) -> list[str]:
    """The answers for key 1, after a query of another key has succeeded."""
    while (await lookup(dimension, 2, timeout_s=PATIENCE_S))[0].startswith("error"):
        pass  # a lost session; the server needs no time
    return [(await lookup(dimension, 1, timeout_s=PATIENCE_S))[0] for _ in range(2)]


def failovers(dimension: Dimension) -> int:
    """How many cached entries another server has removed."""
    return dimension.statistics().invalidations[InvalidationOrigin.FAILOVER]


@pytest.mark.parametrize("functions", [CONTROL_FILE, ALL], ids=["control file", "all"])
@pytest.mark.parametrize("state", ["55000", "0A000", "42501", "P0001", "hidden", "revoked"])
async def test_silent_server_answers_lookups(
    postgres_server: PostgresServer, state: str, functions: Sequence[tuple[str, str]]
) -> None:
    """A server that refuses parts of its identity works; refused statements are not repeated."""
    database, settings = table_of(postgres_server)
    reader = create_reader(database)
    form = {"hidden": _HIDE, "revoked": _FORBID}.get(state, _FAIL)
    for name, result in functions:
        database.execute(*form.format(name=name, result=result, state=state).split("; "))
    async with described(replace(settings, dsn=reader, is_followed=True)) as backend:
        first = await backend.fetch(KEY, timeout_s=PATIENCE_S)
        errors = postgres_server.log.read_text().count("ERROR")
        second = await backend.fetch(KEY, timeout_s=PATIENCE_S)

    found = first.server.identity
    assert (first.rows["name"].to_pylist(), second.server) == (["one"], first.server)
    assert postgres_server.log.read_text().count("ERROR") == errors
    assert first.snapshot is not None
    assert first.snapshot.is_of_standby == (found.is_standby is None)
    if functions is ALL:
        assert found == ServerIdentity(database_id=found.database_id)
    else:
        assert (found.system, found.is_standby, found.timeline) == (None, False, 1)


async def test_failover_before_checkpoint_is_found(primary: PostgresServer) -> None:
    """A promoted standby is another server before its first checkpoint; lost rows are dropped."""
    database, settings = table_of(primary)
    with copied_server(primary) as standby:
        standby.start(None, "checkpoint_timeout=1h")
        copy = standby.database(database.name)
        copy.execute("ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()")
        await copy.wait_for("NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")
        database.execute(UPDATE.format("lost"))
        folders = (database.socket_folder, copy.socket_folder)
        dsn = several(*folders, attributes="primary", database=database)
        async with cached(replace(settings, dsn=dsn)) as dimension:
            primary.crash()
            standby.promote()

            assert await names_after_switch(dimension) == ["fetched one", "hit one"]
            assert failovers(dimension) == 1


async def test_switch_back_is_a_switch(primary: PostgresServer) -> None:
    """The former server is another one again when it comes back."""
    database, settings = table_of(primary)
    with copied_server(primary) as standby:
        standby.start()
        folders = (str(standby.folder), database.socket_folder)
        dsn = several(*folders, attributes="primary", database=database)
        async with cached(replace(settings, dsn=dsn)) as dimension:
            names = []
            for stop, begin in ((primary.crash, standby.promote), (standby.stop, primary.start)):
                stop()
                begin()
                names += await names_after_switch(dimension)
                dimension.invalidate(typed(2), origin=InvalidationOrigin.ADMIN)

            assert names == ["fetched one", "hit one"] * 2
            assert failovers(dimension) == 2


async def test_session_outlives_no_promotion(primary: PostgresServer) -> None:
    """A session whose standby is promoted finds another server with its next query."""
    database, settings = table_of(primary)
    with copied_server(primary) as standby:
        standby.start()
        dsn = standby.database(database.name).dsn()
        async with cached(replace(settings, dsn=dsn)) as dimension:
            standby.promote()

            assert await names_after_switch(dimension) == ["fetched one", "hit one"]


@pytest.mark.parametrize("is_promoted", [True, False], ids=["promoted", "started on its own"])
async def test_clone_at_the_address_is_another(
    primary: PostgresServer, *, is_promoted: bool
) -> None:
    """A copy of a server's files has its system identifier, and is another server."""
    database, settings = table_of(primary)
    addresses = [database.dsn()]
    moving = replace(settings, dsn_now=lambda: addresses[-1])
    with copied_server(primary, is_standby=is_promoted) as clone:
        database.execute(UPDATE.format("lost"))
        async with cached(moving) as dimension:
            primary.crash()
            clone.start()
            if is_promoted:
                clone.promote()
            addresses.append(clone.database(database.name).dsn())

            assert await names_after_switch(dimension) == ["fetched one", "hit one"]


async def test_moved_address_leaves_a_living_server(
    primary: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions of a server that lives on end within a minute after its address has moved."""
    monkeypatch.setattr(connections, "RENEWAL_S", 0.0)
    database, settings = table_of(primary)
    addresses = [database.dsn()]
    moving = replace(settings, dsn_now=lambda: addresses[-1], max_connections=1)
    with copied_server(primary) as standby:
        standby.start()
        async with cached(moving) as dimension:
            promoted = promoted_database(standby, database)
            addresses.append(promoted.dsn())
            async with asyncio.timeout(PATIENCE_S):
                for unknown in count(3):  # each of its lookups is a query
                    await lookup(dimension, unknown)
                    if failovers(dimension):
                        break

            assert await names_after_switch(dimension) == ["fetched new", "hit new"]


@pytest.mark.parametrize("functions", [[], ALL], ids=["known", "silent"])
async def test_load_of_a_former_server_is_refused(
    primary: PostgresServer, functions: Sequence[tuple[str, str]]
) -> None:
    """A load that reaches a former server is repeated until it has the server of lookups.

    Of a server that refuses all parts of its identity, each load counts.
    """
    database, settings = table_of(primary)
    for name, _ in functions:
        database.execute(_FORBID.format(name=name))
    reader = create_reader(database)
    addresses = [reader]
    with copied_server(primary) as standby:
        standby.start()
        promoted = promoted_database(standby, database)
        address = promoted.dsn(user=f"reader_of_{database.name}")
        backend = PostgresBackend(replace(settings, dsn=address))
        load = PostgresSnapshot(replace(settings, dsn_now=lambda: addresses[-1]))
        full = replace(running.settings(), cache=CacheSettings(mode=CacheMode.FULL))
        async with serving(backend, full, sources=RefreshSources(table=load)) as dimension:
            if not functions:
                await running.until(lambda: load_of(dimension).last_error is not None)
                addresses.append(address)
            await until_whole(dimension)
            found = await lookup(dimension, 1)

    assert found == {0: "hit one" if functions else "hit new"}


async def test_refused_sessions_end_no_others(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no new session can be opened for the check of the address, the present ones go on."""
    monkeypatch.setattr(connections, "RENEWAL_S", 0.0)
    database, settings = table_of(postgres_server)
    addresses = [database.dsn()]
    async with cached(replace(settings, dsn_now=lambda: addresses[-1])) as dimension:
        addresses.append("postgresql://reader@127.0.0.1:1/nothing")
        answers = [(await lookup(dimension, 2))[0] for _ in range(2)]

    assert answers == ["fetched two", "hit two"]


async def test_silent_address_takes_no_session(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the check of the address waits for an answer, the present sessions serve on."""
    monkeypatch.setattr(connections, "RENEWAL_S", 0.0)
    database, settings = table_of(postgres_server)
    addresses = [database.dsn()]
    one_session = replace(settings, dsn_now=lambda: addresses[-1], max_connections=1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with described(one_session) as backend:
            addresses.append(f"postgresql://reader@127.0.0.1:{silent.getsockname()[1]}/nothing")
            found = [(await backend.fetch(KEY, timeout_s=0.5)).rows.num_rows for _ in range(20)]

    assert found == [1] * 20


async def test_restarted_primary_is_another(primary: PostgresServer) -> None:
    """A crash may lose commits, whose ids are used again: a restart empties the cache."""
    database, settings = table_of(primary)
    del database
    async with cached(settings) as dimension:
        primary.crash()
        primary.start()

        assert await names_after_switch(dimension) == ["fetched one", "hit one"]


async def test_recreated_database_is_another(database: Database) -> None:
    """A database of the same name is another one after DROP DATABASE."""
    admin = replace(database, name="postgres")
    settings = put_table(database, ROWS, key=["id"])
    async with described(settings) as backend:
        before = (await backend.fetch(KEY, timeout_s=PATIENCE_S)).server
        admin.execute(
            f"DROP DATABASE {database.name} WITH (FORCE)", f"CREATE DATABASE {database.name}"
        )
        put_table(database, ROWS, key=["id"])
        with pytest.raises(BackendError):
            await backend.probe(timeout_s=PATIENCE_S)
        after = (await backend.fetch(KEY, timeout_s=PATIENCE_S)).server

    assert (before.number, after.number) == (0, 1)


@pytest.mark.parametrize("is_cascade", [False, True])
async def test_standbys_in_turn_are_one_server(
    primary: PostgresServer, *, is_cascade: bool
) -> None:
    """Reads that alternate between standbys keep their sessions, and stay in one epoch."""
    database, settings = table_of(primary)
    with ExitStack() as running:
        one = running.enter_context(copied_server(primary))
        one.start()
        two = running.enter_context(copied_server(primary, above=one if is_cascade else None))
        two.start()
        addresses = [each.database(database.name).dsn() for each in (one, two)]
        turns = cycle(addresses)
        settings = replace(settings, dsn_now=lambda: next(turns), max_connections=2)
        servers = []
        async with described(settings) as backend:
            for _ in range(4):
                fetches = (backend.fetch(KEY, timeout_s=PATIENCE_S) for _ in range(2))
                servers.append({fetched.server for fetched in await asyncio.gather(*fetches)})

    assert [len(each) for each in servers] == [2] * 4
    assert len(set().union(*servers)) == 2  # no epoch but the first, no other server
    assert next(turns) == addresses[0]  # each session was opened once


async def test_load_reads_one_of_several_servers(primary: PostgresServer) -> None:
    """If an address leads to standbys in turn, all sessions of a load reach the same one."""
    database, settings = table_of(primary)
    database.execute("INSERT INTO dimension SELECT g, 'row' FROM generate_series(3, 200000) g")
    database.execute("ANALYZE dimension")
    with copied_server(primary) as one, copied_server(primary) as two:
        for each in (one, two):
            each.start()
        turns = cycle([each.database(database.name).dsn() for each in (one, two)])
        settings = replace(settings, dsn_now=lambda: next(turns))
        load = RefreshSources(table=PostgresSnapshot(settings))
        full = replace(running.settings(), cache=CacheSettings(mode=CacheMode.FULL))
        async with serving(PostgresBackend(settings), full, sources=load) as dimension:
            await until_whole(dimension)
            statistics = load_of(dimension)

    assert (statistics.held_rows, statistics.last_error) == (200_000, None)
    assert statistics.counts[LoadResult.ERROR] == 0


async def test_failover_behind_a_pooler_is_found(primary: PostgresServer, tmp_path: Path) -> None:
    """Behind PgBouncer, another server empties the cache with the next query."""
    database, settings = table_of(primary)
    try:
        with (
            copied_server(primary) as standby,
            pgbouncer(tmp_path, database, system_user=primary.system_user) as bouncer,
        ):
            pooled = replace(settings, dsn=bouncer.dsn, pgbouncer=True)
            database.execute(UPDATE.format("lost"))
            async with cached(pooled) as dimension:
                primary.crash()
                standby.start(Path(database.socket_folder), "primary_conninfo=")
                standby.promote()

                assert await names_after_switch(dimension) == ["fetched one", "hit one"]
    except ToolUnavailable as error:
        pytest.skip(str(error))


@contextmanager
def mixed_pooler(folder: Path, database: Database, promoted: ServerCopy) -> Iterator[PgBouncer]:
    """A pooler whose address has moved to the promoted copy, with a session of each server."""
    folder.chmod(0o755)  # for the user of the pooler
    address = folder / "address"
    address.symlink_to(database.socket_folder)
    behind = replace(database, socket_folder=str(address))
    with pgbouncer(folder, behind, system_user=promoted.origin.system_user) as bouncer:
        with psycopg.connect(bouncer.dsn) as former:
            former.execute("SELECT 1")  # its session is in use: the next client gets another one
            address.unlink()
            address.symlink_to(promoted.folder)
            bouncer.use_next_session()
        yield bouncer


async def test_mixed_pooler_keeps_no_former_row(primary: PostgresServer, folder: Path) -> None:
    """If a pooler has sessions of two primaries, a row of the former one is not kept."""
    database, settings = table_of(primary)
    try:
        with copied_server(primary) as standby:
            standby.start()
            promoted_database(standby, database)
            with mixed_pooler(folder, database, standby) as bouncer:
                pooled = replace(settings, dsn=bouncer.dsn, pgbouncer=True, max_connections=1)
                async with serving(PostgresBackend(pooled)) as dimension:
                    while await lookup(dimension, 1) != {0: "fetched one"}:
                        dimension.invalidate(typed(1), origin=InvalidationOrigin.ADMIN)
                        bouncer.use_next_session()
                    for _ in range(2):
                        await lookup(dimension, 1)
                    primary.crash()

                    assert await names_after_switch(dimension) == ["fetched new", "hit new"]
    except ToolUnavailable as error:
        pytest.skip(str(error))


async def test_watched_table_finds_another_server(primary: PostgresServer) -> None:
    """Without lookups, the comparison of a followed table finds another server."""
    database, settings = table_of(primary)
    addresses = [database.dsn()]
    moving = replace(settings, dsn_now=lambda: addresses[-1])
    changes = FakeSource(is_bounded=False)
    changes.add("0", *(SplitPiece("0", position) for position in range(1, 20_000)))
    watched = WatchedTable(changes, moving, interval_s=0.0)
    with copied_server(primary, is_standby=False) as clone:
        async with described(settings) as backend:
            schema = await backend.describe(timeout_s=PATIENCE_S)
        async with watched.reader(schema) as reader:
            await reader.assign(Split("0"), position=None)
            (before,) = await reader.read()
            primary.crash()
            clone.start()
            addresses.append(clone.database(database.name).dsn())
            found = before.changes
            while not found:
                (piece,) = await reader.read()
                found = piece.changes

    (change,) = found
    assert isinstance(change, TableChange)
    assert "another server responded" in change.reason

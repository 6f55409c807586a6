"""Environment of the freshness audit: database, change feed, network link, sidecar and workers."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from spark_client.transport.connection import Connection
from tools.freshness.connections import (
    HttpConnection,
    LookupConnection,
    StreamConnection,
    connection_to,
)
from tools.freshness.feeds import (
    ChangelogFeed,
    FreshnessFeed,
    changelog_feed,
    is_live,
    notifications_feed,
)
from tools.freshness.naive_reader import READER_TWINS
from tools.freshness.naive_sidecar import NAIVE, UNFENCED
from tools.freshness.replica import LogicalReplica, logical_replica
from tools.freshness.table import KEYS, NAME, ReplacedVersions, StaleEntry, create_table
from tools.freshness.workers import LookupWorker, WriteWorker
from tools.processes.link import Link
from tools.processes.postgres_server import (
    Database,
    PostgresServer,
    running_postgres,
    running_standby,
)
from tools.processes.sidecar_process import SERVE, SidecarFigures, SidecarProcess
from tools.processes.until import until

WRITERS = 4
STANDBY = "walreceiver"  # the application name of a standby
_CACHE: Mapping[str, Any] = {"ttl": "1h", "negative_ttl": "1h"}  # only the feed keeps it fresh
DIMENSIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {  # {mode: {dimension: its cache}}
    "partial": {"large": _CACHE, "small": {**_CACHE, "max_bytes": "256KiB"}},
    "full": {"large": {"mode": "full"}},
    "mixed": {
        "large": _CACHE,
        "small": {**_CACHE, "max_bytes": "256KiB"},
        "whole": {"mode": "full"},
    },
}


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The settings of one audit."""

    feed: Literal["changelog", "notifications"]
    mode: Literal["partial", "full", "mixed"] = "partial"
    has_standby: bool = False  # commits wait for it
    has_replica: bool = False  # a logical one, which lookups read
    changelog: Mapping[str, Any] = field(default_factory=dict)  # more of `refresh.changelog`
    audit: Mapping[str, Any] | None = field(default_factory=dict)  # `refresh.audit`
    writers: int = WRITERS
    written_keys: int = KEYS  # writers change the last ones only
    twin: str | None = None  # of `naive_sidecar` or `naive_reader`
    share: Literal["auto", "off"] = "auto"  # of the caches
    seed: int = 0

    @property
    def has_fence(self) -> bool:
        """Whether the sidecar counts the reads that it does not cache."""
        return self.twin in {None, *READER_TWINS} and self.mode != "full"


@dataclass(slots=True)
class FreshnessWorld:
    """The running parts, and their counters."""

    plan: AuditPlan
    server: PostgresServer
    database: Database
    network: Link  # between the sidecar and the server
    feed: FreshnessFeed
    sidecar: SidecarProcess
    sidecar_pid: int
    standby: Database | None
    replica: LogicalReplica | None
    replaced: ReplacedVersions
    connection: Connection  # of channels
    writers: Sequence[WriteWorker] = ()
    readers: Sequence[LookupWorker] = ()
    dimensions: list[str] = field(default_factory=list)
    outlived: list[StaleEntry] = field(default_factory=list)  # read without a lease

    @property
    def changelog(self) -> ChangelogFeed:
        """The feed as a changelog."""
        assert isinstance(self.feed, ChangelogFeed)
        return self.feed

    @property
    def log(self) -> Path:
        """The log of the sidecar."""
        return self.sidecar.folder / "log"

    @property
    def commits(self) -> int:
        """Committed transactions."""
        return sum(each.commits for each in self.writers)

    @property
    def hits(self) -> int:
        """Lookups that the cache has answered."""
        return sum(each.counts.outcomes["hit"] for each in self.readers)

    @property
    def is_looking_up(self) -> bool:
        """Whether a worker waits for an answer."""
        return any(each.is_waiting for each in self.readers)

    def are_live(self) -> bool:
        """Whether all feeds are live."""
        return all(is_live(self.sidecar, name) for name in self.dimensions)

    def figures(self) -> dict[str, float]:
        """The metrics of the sidecar."""
        return SidecarFigures(self.sidecar).read()


@contextmanager
def freshness_world(plan: AuditPlan) -> Iterator[FreshnessWorld]:
    """The environment with live feeds; all workers are paused."""
    # Short: socket paths are limited.
    folder = Path(tempfile.mkdtemp(prefix="sidelook-"))
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        server = stack.enter_context(logical_server())
        database = server.new_database()
        create_table(database)
        replica = stack.enter_context(logical_replica(database)) if plan.has_replica else None
        read = database if replica is None else replica.database
        network = stack.enter_context(Link(Path(read.socket_path), own_path=None))
        feed = stack.enter_context(_feed(plan, server, database, folder=folder))
        standby = stack.enter_context(_standby(server)) if plan.has_standby else None
        config = folder / "config.json"
        _write_config(config, plan, feed.refresh(), dsn=_dsn(network, read))
        sidecar = SidecarProcess(folder, (*_command(plan), "--config", str(config)))
        process = stack.enter_context(sidecar.running())
        replaced = ReplacedVersions()
        connection = connection_to(sidecar, plan.twin)
        world = FreshnessWorld(
            *(plan, server, database, network, feed, sidecar, process.pid, standby, replica),
            replaced=replaced,
            connection=connection,
        )
        world.dimensions = list(DIMENSIONS[plan.mode])
        until(world.are_live)
        world.writers = [
            stack.enter_context(
                WriteWorker(database, replaced, key_count=plan.written_keys, seed=seed)
            )
            for seed in range(plan.seed, plan.seed + plan.writers)
        ]
        ways: list[LookupConnection] = [HttpConnection(sidecar, name) for name in world.dimensions]
        ways += [StreamConnection(connection, name) for name in world.dimensions]
        world.readers = [
            stack.enter_context(LookupWorker(way, replaced, seed=plan.seed + number))
            for number, way in enumerate(ways)
        ]
        yield world


@contextmanager
def logical_server() -> Iterator[PostgresServer]:
    """A server whose changes can be read by logical replication."""
    with running_postgres() as server:
        settings = ("wal_level = logical", "wal_retrieve_retry_interval = '100ms'")
        server.new_database().execute(*(f"ALTER SYSTEM SET {each}" for each in settings))
        server.stop()
        server.start()
        yield server


@contextmanager
def _feed(
    plan: AuditPlan, server: PostgresServer, database: Database, *, folder: Path
) -> Iterator[FreshnessFeed]:
    if plan.feed == "changelog":
        with changelog_feed(server, database, folder, settings=plan.changelog) as changelog:
            yield changelog
        return
    config = folder / "triggers.json"
    _write_config(config, plan, {"listen": {"channel": NAME}}, dsn=database.dsn())
    with notifications_feed(database, config) as notifications:
        yield notifications


@contextmanager
def _standby(server: PostgresServer) -> Iterator[Database]:
    with running_standby(server) as socket_folder:
        database = Database(socket_folder, "postgres")
        admin = Database(str(Path(server.socket_path).parent), "postgres")
        set_names = "ALTER SYSTEM SET synchronous_standby_names = {}"
        admin.execute(set_names.format(f"'{STANDBY}'"), "SELECT pg_reload_conf()")
        is_there = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        until(lambda: admin.query(is_there))
        try:
            yield database
        finally:
            admin.execute(set_names.format("''"), "SELECT pg_reload_conf()")


def _command(plan: AuditPlan) -> tuple[str, ...]:
    if plan.twin not in {NAIVE, UNFENCED}:
        return SERVE
    return (sys.executable, "-m", "tools.freshness.naive_sidecar", str(plan.twin), "serve")


def _dsn(network: Link, database: Database) -> str:
    address = network.url.removeprefix("http://")
    return f"postgresql://postgres@{address}/{database.name}?sslmode=disable"


def _write_config(path: Path, plan: AuditPlan, refresh: Mapping[str, Any], *, dsn: str) -> None:
    dimensions = {
        name: {
            "source": {"kind": "postgres", "dsn": dsn, "table": f"public.{NAME}"},
            "key": ["id"],
            "timeout": "5s",
            "cache": {**cache, "share": plan.share},
            "refresh": {**refresh, "audit": plan.audit},
        }
        for name, cache in DIMENSIONS[plan.mode].items()
    }
    path.write_text(json.dumps({"dimensions": dimensions}))  # JSON is YAML, too

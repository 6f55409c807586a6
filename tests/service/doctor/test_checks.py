"""Checks of real surroundings: sockets, files, control groups, servers.

Real databases and brokers are in `tests/integration/doctor`.
"""

import asyncio
import errno
import os
import socket
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import TableOrigin
from lookup_core.errors import SidecarUnreachable
from service.bound_sockets import unix_socket
from service.config.listen import ListenTls
from service.config.refresh import Changelog
from service.config.settings import Settings
from service.connectors.postgres.column_types import KeySending
from service.connectors.postgres.notifications import PostgresNotificationsSettings
from service.connectors.postgres.sessions import PostgresSettings
from service.connectors.postgres.table import PostgresTable
from service.doctor.backends.database_check import check_database
from service.doctor.backends.kafka_check import check_kafka
from service.doctor.backends.postgres_server import Database, databases_of
from service.doctor.backends.table_check import TableCheck, try_notifications
from service.doctor.check_runner import Inspection
from service.doctor.deployment.spark_check import check_kubernetes
from service.doctor.finding import Subject
from service.doctor.sidecar.configuration_check import check_process_limits
from service.doctor.sidecar.response import SidecarResponse
from service.doctor.sidecar.secrets_check import (
    check_certificate,
    check_secrets,
    secret_files,
)
from service.doctor.sidecar.sharing_check import check_shared_memory, read_cache
from service.doctor.sidecar.sidecar_check import check_sidecar
from service.doctor.sidecar.socket_check import check_socket, read_socket
from service.version import own_version
from tests.service.config.configuration import CHANGELOG, MINIMAL, table
from tests.service.doctor.findings import SUBJECT, gathered, texts
from tests.service.tls.certificates import authority, section, yesterday

WELL: dict[str, list[object]] = {"health": []}
GONE = {"severity": "warning", "code": "unavailable", "text": "gone"}
SIDECAR = Subject("sidecar", "unix:///s")
NOWHERE = "postgresql://me:secret@127.0.0.1:1/d"
POSTGRES = {"kind": "postgres", "dsn": "postgresql://me@h/d", "table": "t"}


async def found(results: Inspection) -> list[str]:
    """The findings of a check, and their remedies."""
    return texts(await gathered(results))


def written(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder with these files, which are secrets."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o400)
    return folder


async def test_sockets_are_read(tmp_path: Path) -> None:
    """The holder of the lock is named; a server that ended, or nothing at the path, is a fact."""
    served, left, none = (tmp_path / name for name in ("s.sock", "left", "none"))
    with socket.socket(socket.AF_UNIX) as ended, unix_socket(served) as unix:
        ended.bind(str(left))
        assert unix.socket is not None
        unix.socket.listen()
        lines = await found(check_socket(SUBJECT, served))
    facts = read_socket(left)

    owner = f"uid and gid {os.getuid()}:{os.getgid()}"
    assert lines == [f"ok: is served by process {os.getpid()}; mode 0660, {owner}"]
    assert (facts.connect_errno, facts.lock_holder) == (errno.ECONNREFUSED, None)
    assert (read_socket(none).mode, read_socket(none / "s.sock").has_folder) == (None, False)


def test_shared_cache_is_read(tmp_path: Path) -> None:
    """A process tries what a worker does: it reads the lease; the folder may be missing."""
    lease = tmp_path / "lease"
    lease.write_bytes(b"")
    readable, missing = read_cache(tmp_path), read_cache(tmp_path / "gone")
    lease.unlink()
    lease.symlink_to(lease)

    assert (readable.errno, readable.group) == (None, tmp_path.stat().st_gid)
    assert (missing.errno, missing.group) == (errno.ENOENT, readable.group)
    assert read_cache(tmp_path).errno == errno.ELOOP


async def test_place_of_shared_caches_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a tmpfs a sidecar that runs says so itself; a folder may be on another machine."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as near:
        fits, large = [
            await found(
                check_shared_memory(SUBJECT, Path(near) / "s", size, is_sidecar_checked=True)
            )
            for size in (2**20, 2**60)
        ]
    monkeypatch.setattr("service.resources.shared_place.SHARED_MEMORY", Path("/proc"))
    alone, beside = [
        await found(check_shared_memory(SUBJECT, Path("/proc/s"), 1, is_sidecar_checked=checked))
        for checked in (False, True)
    ]
    far, _ = await found(check_shared_memory(SUBJECT, Path("/no/s"), 1, is_sidecar_checked=True))

    assert fits == ["ok: the tmpfs /dev/shm can hold the shared caches, up to 1MiB"]
    assert large[0].startswith("warning: the tmpfs /dev/shm has ")
    reason = "warning: caches will not be shared: neither /proc nor /proc is a tmpfs"
    assert (alone, beside) == ([reason, "  → mount one at /proc"], [])
    assert far.startswith("skipped: the folder does not exist here")


async def test_all_secrets_are_checked(tmp_path: Path) -> None:
    """Tokens, keys, headers, addresses and passwords are checked, and never shown.

    One that vanished since the configuration was loaded is an error.
    """
    written(
        tmp_path, {"token": "s3cret", "dsn": "postgresql://me:s3cret@h", "headers": "a: s3cret"}
    )
    token, dsn, headers = (tmp_path / name for name in ("token", "dsn", "headers"))
    key = authority(tmp_path).issue()
    login = {"mechanism": "PLAIN", "username": "u", "password_file": str(token)}
    one = {
        "source": {"kind": "postgres", "dsn_file": str(dsn), "table": "t"},
        "key": ["id"],
        "refresh": {"changelog": CHANGELOG | {"security": login}},
    }
    settings = Settings(
        {
            "auth": {"admin_token_file": str(token)},
            "tracing": {"endpoint": "http://c:1", "headers_file": str(headers)},
            "listen": {"http": "127.0.0.1:1", "tls": section(key)},
            "dimensions": {"a": one},
        }
    )

    mount = f"36 35 98:0 /x {token} rw - ext4 /dev/sda rw\n"
    root = written(tmp_path / "root", {"proc/self/mountinfo": mount})
    headers.unlink()

    lines = await found(check_secrets(Subject("secrets", "files"), settings, root))

    assert secret_files(settings) == [token, headers, key.key_file, dsn]
    assert "s3cret" not in str(lines)
    assert [line for line in lines if not line.startswith("  →")] == [
        f"warning secrets {token}: is a mount of its own (subPath): a rotated secret never arrives",
        f"error secrets {headers}: cannot be read: No such file or directory",
        f"ok secrets {key.key_file}: is readable, and protected (mode 0600)",
        f"ok secrets {dsn}: is readable, and protected (mode 0400)",
    ]


@pytest.mark.parametrize(("days", "severity"), [(30, "ok"), (3, "warning"), (0.5, "error")])
async def test_certificate_is_read(tmp_path: Path, days: float, severity: str) -> None:
    """The expiry of the configured file counts; an invalid renewal is an error."""
    signer = authority(tmp_path)
    files = signer.issue(not_after=datetime.now(UTC) + timedelta(days=days))
    tls = ListenTls(cert_file=files.cert_file, key_file=files.key_file)

    (before, *_) = await found(check_certificate(SUBJECT, tls))
    signer.issue(not_before=yesterday() - timedelta(days=1), not_after=yesterday())
    (after, *_) = await found(check_certificate(SUBJECT, tls))

    assert before.startswith(f"{severity}: ")
    assert after.startswith(f"error: {files.cert_file}: certificate has exp")


@pytest.mark.parametrize(
    ("files", "memory", "processors"),
    [
        (
            {
                "proc/self/cgroup": "0::/one\n",
                "sys/fs/cgroup/one/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/one/memory.max": "16777216\n",
            },
            "warning: limits.memory is 16MiB, and the container has 16MiB",
            "warning: is limited to 0.5 processors",
        ),
        (
            {
                "proc/self/cgroup": "3:cpu,cpuacct:/c\n2:memory:/m\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "150000\n",
                "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/memory/m/memory.limit_in_bytes": "16777215\n",
            },
            "error: limits.memory is 16MiB, and the container has 15MiB",
            "ok: has at least one processor",
        ),
        (
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000"},
            "ok: limits.memory is 16MiB, and memory has no limit",
            "ok: processors have no limit",
        ),
    ],
    ids=["version 2", "version 1", "unlimited"],
)
async def test_control_group_is_read(
    tmp_path: Path, files: dict[str, str], memory: str, processors: str
) -> None:
    """Both versions are read; memory has a finding only with limits.memory of a configuration."""
    root = written(tmp_path, {"proc/self/statm": "900 100 30 1 0 50 0"} | files)

    alone = await found(check_process_limits(SUBJECT, None, root))
    both = await found(check_process_limits(SUBJECT, 2**24, root))

    assert alone[0].startswith(processors)
    assert (both[0].startswith(memory), both[-len(alone) :]) == (True, alone)


@pytest.mark.parametrize(
    ("path", "answer", "message"),
    [
        ("/none", SidecarResponse(200), None),
        (
            "/v1/dimensions",
            SidecarResponse(401, {"code": "unauthorized"}),
            "error sidecar unix:///s: does not list its dimensions: it requires a token",
        ),
        (
            "/v1/dimensions/a%20b",
            SidecarResponse(200, {"health": [GONE]}),
            "error sidecar a b: gone",
        ),
        (
            "/livez",
            SidecarResponse(200, "ok\n", formatdate(0, usegmt=True)),
            "error clock unix:///s: its clock is ",
        ),
    ],
)
async def test_every_response_has_findings(
    path: str, answer: SidecarResponse, message: str | None
) -> None:
    """Readiness, version, clock, names and dimensions of a sidecar have findings."""
    answers = {
        "/livez": SidecarResponse(200, "ok\n", formatdate(time.time(), usegmt=True)),
        "/readyz": SidecarResponse(200, "ok\n"),
        "/openapi.json": SidecarResponse(200, {"info": {"version": own_version()}}),
        "/v1/dimensions": SidecarResponse(200, {"dimensions": ["a b"]}),
        "/v1/dimensions/a%20b": SidecarResponse(200, WELL),
        path: answer,
    }

    async def get(path: str) -> SidecarResponse:
        return answers[path]

    lines = await found(check_sidecar(SIDECAR, get=get, configured=["a b"]))

    bad = [line for line in lines if not line.startswith(("ok ", "  →"))]
    assert [line.startswith(message or "?") for line in bad] == ([True] if message else [])


async def test_absent_sidecar_is_one_error() -> None:
    """Nothing else is queried."""

    async def get(_path: str) -> SidecarResponse:
        raise SidecarUnreachable("unix:///s", "Connection refused; is it running there?")

    lines = await found(check_sidecar(SIDECAR, get=get))

    assert lines[0] == "error sidecar unix:///s: does not respond: Connection refused"
    assert len(lines) == 2


async def test_absent_stores_are_one_error_each() -> None:
    """Passwords are not shown; tables of an absent database are skipped."""
    settings = PostgresSettings(NOWHERE, "t", ("id",))
    database = Database(settings, {"a": table()})
    tables = TableCheck(database, asyncio.Semaphore(1))
    key = KeySending(pa.field("id", pa.int32()), "int4")
    listening = PostgresNotificationsSettings(NOWHERE, "public.t", "channel")
    changelog = Changelog.model_validate(CHANGELOG | {"brokers": ["127.0.0.1:1"]})

    lines = await found(check_database(SUBJECT, database))
    trial = await try_notifications(
        SUBJECT, listening, PostgresTable(TableOrigin("public", "t"), (("id", key),), ())
    )
    kafka = await found(check_kafka(SUBJECT, changelog))

    assert lines[0].startswith("error: ")
    assert (len(lines), "secret" in str(lines), database.server) == (2, False, None)
    assert await found(tables.inspect(Subject("table", "a"))) == [
        "skipped table a: was not checked, because its database does not answer",
        "  → see the finding of its database",
    ]
    assert texts([trial])[0] == "error: public.t: nothing listens at the address of the DSN"
    assert (kafka[0].split()[0], "advertised.listeners" in kafka[1]) == ("error:", True)


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://me:secret@h:5432/shop", "me@h:5432/shop"),
        ("postgresql://me@h,i:1/shop?sslmode=require", "me@h,i:1/shop"),
        ("postgresql://h/shop", "h/shop"),
        ("postgresql://h", "h"),
        ("postgresql://me:secret@/shop?host=/run", "the database of a"),
        ("postgresql://me:se/cret@h/shop", "the database of a"),
        ("postgresql://me:secret@h/shop?password=secret", "me@h/shop"),
    ],
)
def test_address_has_no_password(dsn: str, address: str) -> None:
    """User, host and database are shown only if they are unambiguous."""
    place = Database(PostgresSettings(dsn, "t", ("id",)), {"a": table()})

    assert place.address == address


def test_dimensions_of_one_address_share_a_pool(tmp_path: Path) -> None:
    """A listener and the load of a whole table have connections next to those of each pool."""
    of_table = partial(table, source=POSTGRES)
    file = tmp_path / "dsn"
    file.write_text("postgresql://me@h/d")
    file.chmod(0o600)
    of_file = {"kind": "postgres", "table": "t", "dsn_file": str(file)}
    dimensions = {
        "a": of_table(),
        "b": table(source=POSTGRES | {"dsn": "postgresql://me@i/d"}),
        "c": of_table(refresh={"listen": {}}),
        "d": table(source=POSTGRES | {"pgbouncer": True}),
        "e": of_table(cache={"mode": "full"}),
        "f": table(source=of_file),
    }
    places = databases_of(
        Settings(MINIMAL | {"limits": {"database_connections": 3}, "dimensions": dimensions})
    )

    assert [(tuple(place.dimensions), place.connections, place.listens) for place in places] == [
        (("a", "c", "e", "f"), 2 * 3 + 1 + 5, True),
        (("b",), 3, False),
        (("d",), 3, False),
    ]


async def test_unknown_cluster_is_skipped() -> None:
    """The remedy is the command that gives the version."""
    first, second = await found(check_kubernetes(SUBJECT, None))

    assert first == "skipped: its version is unknown here"
    assert second.startswith("  → run: kubectl version -o json | ")

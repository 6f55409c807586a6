"""The machine that a page runs on: private folders, host names, PostgreSQL, and the command.

Everything stays within the namespaces of the process (network, mounts, processes): pages use the
paths, ports and host names that they show.
"""

import fcntl
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from demo.embedded_postgres import installed_programs, temporary_server
from tests.docs.pages.blocks import ROOT
from tools.processes.postgres_server import Database, PostgresServer
from tools.processes.until import until

HOSTS = ("db.example", "sidelook.example", "kafka-1", "kafka-2")
DSN = "postgresql://sidelook:PASSWORD@db.example:5432/shop"
READY = "http://127.0.0.1:8816/readyz"
_SET_FLAGS, _IS_UP = 0x8914, 0x1  # SIOCSIFFLAGS and IFF_UP of linux/if.h
_SETUP = (
    "ALTER SYSTEM SET wal_level = logical",
    "CREATE DATABASE shop",
    "CREATE ROLE sidelook LOGIN PASSWORD 'PASSWORD'",
    "GRANT pg_read_all_data TO sidelook",
)


def make_private(folder: Path) -> None:
    """Bring loopback up; give `/run`, `/etc` and `folder` contents that end with the process."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _IS_UP))
    for place in ("/run", str(folder)):
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
    folder.chmod(0o755)  # PostgreSQL runs as another user
    shutil.copytree("/etc", folder / "etc", symlinks=True)
    subprocess.run(["mount", "--bind", str(folder / "etc"), "/etc"], check=True)
    names = " ".join((*HOSTS, socket.gethostname()))
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost {names}\n")
    for name in ("/etc/sidelook", "/run/sidelook"):
        Path(name).mkdir(exist_ok=True)
    (secret := Path("/etc/sidelook/dsn")).write_text(f"{DSN}\n")
    secret.chmod(0o600)


def make_checkout(folder: Path) -> Path:
    """A folder with the entries of the checkout; files in `examples` may be changed."""
    (checkout := folder / "checkout").mkdir()
    for entry in ROOT.iterdir():
        if entry.name == "examples":
            shutil.copytree(entry, checkout / entry.name)
        elif entry.name not in {".git", "out", "dist"}:
            (checkout / entry.name).symlink_to(entry)
    return checkout


def environment(folder: Path) -> Mapping[str, str]:
    """The variables of all programs of a page; `sidelook` is the service of the checkout."""
    (programs := folder / "bin").mkdir()
    (command := programs / "sidelook").write_text(
        f"#!/bin/sh\nPYTHONPATH={shlex.quote(str(ROOT))}"
        f' exec {shlex.quote(sys.executable)} -m service "$@"\n'
    )
    command.chmod(0o755)
    path = (programs, Path(sys.executable).parent, installed_programs(), os.environ["PATH"])
    return {
        **os.environ,
        "PATH": os.pathsep.join(map(str, path)),
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false"
        " --conf spark.ui.showConsoleProgress=false"
        " --conf spark.sql.shuffle.partitions=2 --conf spark.sql.session.timeZone=UTC"
        " --conf spark.driver.host=127.0.0.1 --conf spark.log.level=ERROR"
        f" --conf spark.local.dir={folder} --conf spark.sql.warehouse.dir={folder / 'warehouse'}"
        " pyspark-shell",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PGHOST": "db.example",
        "PGUSER": "postgres",
        "PGDATABASE": "shop",
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        "HOME": str(folder),
    }


@contextmanager
def running_database() -> Iterator[None]:
    """PostgreSQL at db.example:5432 with the database `shop` and the role `sidelook`."""
    with temporary_server() as embedded:
        server = PostgresServer(embedded)
        sockets = str(Path(server.socket_path).parent)
        Database(sockets, "postgres").execute(*_SETUP)
        rules = embedded.pgdata / "pg_hba.conf"
        rules.write_text("host all sidelook all scram-sha-256\n" + rules.read_text())
        options = f"-h 127.0.0.1 -k {sockets}"
        server.run("pg_ctl", ("-w", "-D", str(embedded.pgdata), "-o", options, "restart"))
        yield


def wait_until_ready() -> None:
    """Wait until the sidecar of the page is ready; raises NotSo after a minute."""
    until(_is_ready)


def _is_ready() -> bool:
    try:
        with urllib.request.urlopen(READY, timeout=5):
            return True
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False

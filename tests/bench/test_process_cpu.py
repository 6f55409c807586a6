"""Whose processor time something takes."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest

from bench.timing import KINDS, postmaster, seconds_of
from demo.postgres import embedded_postgres

SPIN = "import time\nwhile time.process_time() < 0.3: pass"
IN_CHILD = f"print(flush=True); input()\n{SPIN}\nprint(flush=True); input()"
IN_GRANDCHILD = f"""
import subprocess, sys
print(flush=True); input()
subprocess.run([sys.executable, "-c", {SPIN!r}], check=True)
print(flush=True); input()
"""


@pytest.mark.parametrize("code", [IN_CHILD, IN_GRANDCHILD])
def test_time_is_told_by_kind_of_process(code: str) -> None:
    """A child that works shows in its kind, and not in another; its own that ends, too."""
    with _child(code) as server, _child(code) as child:
        spent = seconds_of(lambda: _let_work(child), postgres=psutil.Process(server.pid))

    assert tuple(spent) == KINDS
    assert spent["Python workers"] > 0.1
    assert (spent["JVM"], spent["sidecar"], spent["PostgreSQL"]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize("code", [IN_CHILD, IN_GRANDCHILD])
def test_server_is_told_by_its_folder(code: str, tmp_path: Path) -> None:
    """The process that the folder names counts as PostgreSQL with its children, whatever it is."""
    with _child(code) as server:
        (tmp_path / "postmaster.pid").write_text(f"{server.pid}\n{tmp_path}\n")
        spent = seconds_of(lambda: _let_work(server), postgres=postmaster(tmp_path))

    assert spent["PostgreSQL"] > 0.1
    assert spent["Python workers"] == 0.0


def test_server_that_ended_is_an_error() -> None:
    """No figure is told of a server that is not there."""
    with _child(IN_CHILD) as server:
        process = psutil.Process(server.pid)

    with pytest.raises(psutil.NoSuchProcess):
        seconds_of(lambda: None, postgres=process)


@pytest.mark.full
def test_work_of_the_own_server_alone_counts(tmp_path: Path) -> None:
    """What one embedded server does shows in its seconds, and not in those of another."""
    query = "SELECT count(md5(id::text)) FROM generate_series(1, 1000000) AS id"
    with (
        embedded_postgres(tmp_path / "own") as own,
        embedded_postgres(tmp_path / "other"),
        psycopg.connect(own.get_uri()) as connection,
    ):
        spent, unseen = (
            seconds_of(lambda: connection.execute(query), postgres=postmaster(tmp_path / name))
            for name in ("own", "other")
        )

    assert spent["PostgreSQL"] > 0.1
    assert unseen["PostgreSQL"] < 0.1


@contextmanager
def _child(code: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that has started; waits for a line before it works, and for another before it ends."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.communicate(b"\n\n")


def _let_work(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()

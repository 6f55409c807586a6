"""Faults of the node and of Kubernetes: short grace, throttling, other owners, clocks, sleep."""

import http.client
import os
import signal
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lookup_core.protocol.client_channel import ChannelRequest
from lookup_core.protocol.sent_lookups import RunId, SentKeys
from spark_client.transport.connection import ChannelSession
from spark_client.transport.connections import Connections, SidecarAddress
from tests.end_to_end.sidecars import (
    configured,
    customers_sidecar,
    frozen,
    locked_sidecar,
    lookup,
    postgres,
    throttled,
    url_of,
)
from tests.integration.notifications.trigger_messages import CHANNEL, make_triggers
from tools.debian import debian_package
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import REQUEST_TIMEOUT_S, Reply, SidecarProcess
from tools.processes.until import until

PATIENCE_S = 60.0
TIMEOUT_MS = 1_000  # of lookups that cannot be answered
CALLERS = 16
REQUESTS = 4  # of each caller of the throttled sidecar
# Its lookups only: a schema check may wait for the lock, too.
BLOCKED = """SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND strpos(query, 'WITH ORDINALITY') > 0"""
FAILED = ("error", "backend_unavailable")  # while the breaker is open
# Without capabilities root cannot write files of other users.
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
OTHER_UID, OTHER_GID = 4321, 4322
DAY_S = 86_400
MAX_STALENESS_S = 6.0  # the least that can be configured
KEY = pa.schema({"id": pa.int64()})


def ask(session: ChannelSession, key: int) -> None:
    """Send a lookup of one key."""
    keys = pa.record_batch([pa.array([key], pa.int64())], schema=KEY)
    session.look_up(SentKeys(RunId(1), keys, time.monotonic() + PATIENCE_S))


def name_for(session: ChannelSession) -> str:
    """The name in the only answer."""
    (answered,) = session.answers(PATIENCE_S)
    rows = answered.answer.rows
    return "" if rows is None else str(rows["name"][0].as_py())


def test_short_grace_loses_nothing(folder: Path, database: Database) -> None:
    """G5: before SIGKILL the drain answers what it can, and the next sidecar answers the rest."""
    sidecar = locked_sidecar(folder, database)
    with sidecar.running(ends_by=signal.SIGKILL) as process, database.locked("stuck"):
        connection = Connections().to(SidecarAddress(url_of(sidecar), None, PATIENCE_S))
        quick, slow, stuck = (
            connection.open(ChannelRequest(name, ("name",), "a test", KEY))
            for name in ("quick", "slow", "stuck")
        )
        ask(stuck, 7)
        with database.locked("slow"):
            ask(slow, 8)
            until(lambda: database.query(BLOCKED) == [(2,)])
            process.terminate()
            until(lambda: "service.draining" in (folder / "log").read_text())
        assert name_for(slow) == "c8"
        ask(quick, 9)
        assert process.poll() is None  # the drain waits for the locked table
    with sidecar.running():
        assert (name_for(quick), name_for(stuck)) == ("c9", "c7")


def outcome_of(reply: Reply) -> str:
    """The outcome of the key, or the code of the whole request."""
    body = reply.json()
    return str(body["outcomes"][0] if reply.status == 200 else body["code"])


def test_throttled_sidecar_keeps_its_deadlines(folder: Path, database: Database) -> None:
    """G7: with a tenth of a processor lookups end with an outcome, and liveness succeeds."""
    sidecar = locked_sidecar(folder, database, environ={"SIDELOOK_LIMITS__CONNECTIONS": "8"})

    def outcomes() -> set[str]:
        return {outcome_of(lookup(sidecar, "slow", TIMEOUT_MS)) for _ in range(REQUESTS)}

    with sidecar.running() as process, ThreadPoolExecutor(CALLERS) as callers:
        with database.locked("slow"), throttled(process, share=0.1):
            asking = [callers.submit(outcomes) for _ in range(CALLERS)]
            probes = {sidecar.health("/livez").status for _ in range(REQUESTS)}
            found = {each for asked in asking for each in asked.result()}
        until(lambda: outcome_of(lookup(sidecar, "slow", TIMEOUT_MS)) == "fetched")

    assert {"timeout", "overloaded"} <= found <= {"timeout", "overloaded", *FAILED}
    assert probes == {200}


def test_folder_of_the_group_is_enough(folder: Path) -> None:
    """G9: a folder of another user and of the pod's fsGroup holds the socket."""
    socket_folder = folder / "run"
    socket_folder.mkdir()
    os.chown(socket_folder, OTHER_UID, OTHER_GID)
    socket_folder.chmod(0o770 | stat.S_ISGID)
    plain = customers_sidecar(folder)
    command = (*WITHOUT_RIGHTS, f"--groups={OTHER_GID}", *plain.command)
    with (sidecar := SidecarProcess(socket_folder, command, environ=plain.environ)).running():
        status = sidecar.socket.stat()

    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (OTHER_GID, 0o660)


@dataclass(frozen=True, slots=True)
class WallClock:
    """The wall clock of one process, set by a file; the monotonic clock is the machine's."""

    file: Path

    def environ(self) -> dict[str, str]:
        """The environment of a process with this clock."""
        library = next(debian_package("libfaketime").rglob("libfaketimeMT.so.1"))
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: int) -> None:
        """Set the clock this far ahead of the machine's, from the next second on."""
        coming = self.file.with_suffix(".next")
        coming.write_text(f"{seconds:+d}")
        coming.replace(self.file)


def wall_clock_s(sidecar: SidecarProcess) -> float:
    """The time of the process: the date of its responses."""
    address = ("127.0.0.1", sidecar.health_port)
    connection = http.client.HTTPConnection(*address, timeout=REQUEST_TIMEOUT_S)
    connection.request("GET", "/livez")
    date = connection.getresponse().headers["Date"]
    connection.close()
    return parsedate_to_datetime(date).timestamp()


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S], ids=["ahead", "back"])
def test_step_of_the_clock_changes_nothing(
    folder: Path, database: Database, *, step_s: int
) -> None:
    """G12: ages and deadlines ignore a step of the wall clock, and liveness succeeds."""
    clock = WallClock(folder / "clock")
    clock.step(0)
    sidecar = locked_sidecar(folder, database, environ=clock.environ())
    with sidecar.running():
        began_s = time.monotonic()
        assert outcome_of(lookup(sidecar, "quick", 20_000)) == "fetched"
        clock.step(step_s)
        until(lambda: abs(wall_clock_s(sidecar) - time.time() - step_s) < DAY_S / 2)
        again = lookup(sidecar, "quick", 20_000)
        with database.locked("slow"):
            slow = outcome_of(lookup(sidecar, "slow", 500))
        live = sidecar.health("/livez").status

    assert (outcome_of(again), slow, live) == ("hit", "timeout", 200)
    assert again.json()["ages_ms"][0] <= (time.monotonic() - began_s) * 1000


def test_woken_sidecar_distrusts_its_cache(folder: Path, database: Database) -> None:
    """G12: after a sleep beyond `max_staleness` no answer is a row that has changed since."""
    database.execute(
        "CREATE TABLE followed (id int8 PRIMARY KEY, name text)",
        "INSERT INTO followed VALUES (7, 'c7')",
    )
    make_triggers(database, "followed", ["id"])
    listen = {"channel": CHANNEL, "max_staleness": f"{MAX_STALENESS_S:g}s"}
    settings: dict[str, object] = {"refresh": {"listen": listen}, "timeout": "20s"}
    followed = postgres(database.dsn(), "followed", **settings)
    sidecar = configured(folder, {"followed": followed})

    def name() -> str:
        return str(sidecar.get("/v1/dimensions/followed/rows/7").json()["name"])

    with sidecar.running() as process, ThreadPoolExecutor(CALLERS) as callers:
        until(lambda: outcome_of(lookup(sidecar, "followed", 20_000)) == "hit")
        with frozen(process):
            database.execute("UPDATE followed SET name = 'changed' WHERE id = 7")
            asking = [callers.submit(name) for _ in range(CALLERS)]
            time.sleep(MAX_STALENESS_S + 1.0)  # the sleep itself
        names = {each.result() for each in asking}

    assert names == {"changed"}

"""What Kubernetes does to a sidecar: no time to end, hardly any processor, a folder of others."""

import os
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.end_to_end.lifecycle_sidecar import askers, lifecycle_sidecar
from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar
from tests.end_to_end.throttled import throttled
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import Reply, SidecarProcess
from tools.processes.until import until

GRACE_S = 2.0  # between SIGTERM and SIGKILL, where the pod's time is used up by the executor
THROTTLED_S = 6.0
TIMEOUT_MS = 1_000  # of a lookup of the throttled sidecar
SLACK_S = 4.0  # for a tenth of a processor, and for others on the machine
LIVENESS_S = 5.0  # `timeoutSeconds` of the probe
CALLERS = 16
# Of its lookups only: what looks after the schema may wait for a lock, too.
BLOCKED = """SELECT count(*) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND strpos(query, 'WITH ORDINALITY') > 0"""
FAILED = ("error", "backend_unavailable")  # once the breaker is open
# Root without capabilities is a user like others: files of others are none of its own.
WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all")
OTHER_UID, OTHER_GID = 4321, 4322


def test_short_grace_loses_nothing(folder: Path, database: Database) -> None:
    """What was taken in and can be answered is, before SIGKILL; the next sidecar does the rest."""
    sidecar = lifecycle_sidecar(folder, database)
    with sidecar.running(ends_by=signal.SIGKILL) as process, database.locked("stuck"):
        asking = askers(sidecar)
        asking["stuck"].ask(1, 7)
        with database.locked("slow"):
            asking["slow"].ask(1, 8)
            until(lambda: database.query(BLOCKED) == [(2,)])  # both were taken in
            process.terminate()
            until(lambda: "service.draining" in (folder / "log").read_text())
        # The first step of the drain: what was taken in is answered, and nothing new is taken.
        assert asking["slow"].wait_for(1, within_s=GRACE_S) == {1: "c8"}
        asking["quick"].ask(1, 9)
        assert process.poll() is None  # it waits for the other one, for longer than it may
    with sidecar.running():
        found = [asking[name].wait_for(1)[1] for name in ("quick", "slow", "stuck")]

    assert found == ["c9", "c8", "c7"]


def test_throttled_sidecar_keeps_its_deadlines(folder: Path, database: Database) -> None:
    """With a tenth of a processor lookups end in time, answered or not, and liveness is green."""
    sidecar = lifecycle_sidecar(folder, database, {"SIDELOOK_LIMITS__CONNECTIONS": "8"})
    with sidecar.running() as process, ThreadPoolExecutor(CALLERS + 1) as callers:
        with database.locked("slow"), throttled(process, share=0.1):
            ends_at = time.monotonic() + THROTTLED_S
            asking = [callers.submit(_ask_until, sidecar, ends_at) for _ in range(CALLERS)]
            probes = callers.submit(_probe_until, sidecar, ends_at).result()
            found = [each for asked in asking for each in asked.result()]
        # Until it has read that its callers have left, and the breaker that the table is back.
        until(lambda: _word(_lookup(sidecar, "slow")) == "fetched")

    words = {_word(reply) for reply, _ in found}
    assert {"timeout", "overloaded"} <= words <= {"timeout", "overloaded", *FAILED}
    assert max(took_s for _, took_s in found) < TIMEOUT_MS / 1000 + SLACK_S
    assert max(probes) < LIVENESS_S


@pytest.mark.parametrize("share", ["missing", "of another user"])
def test_folder_of_others_is_told(folder: Path, share: str) -> None:
    """Without a folder that it may write the sidecar ends with 78, and says as whom it tried."""
    sidecar = stopped_parquet_sidecar(folder)
    socket_folder = folder / "run"
    if share == "of another user":
        socket_folder.mkdir(mode=0o755)
        os.chown(socket_folder, OTHER_UID, OTHER_GID)
    ended = subprocess.run(
        (*WITHOUT_RIGHTS, *sidecar.command),
        cwd=sidecar.code,
        env={**sidecar.whole_environ, "SIDELOOK_LISTEN__UNIX": str(socket_folder / "s.sock")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78, ended.stderr
    assert "the folder must exist and be writable" in ended.stderr
    assert f"uid {os.getuid()}, gid {os.getgid()}" in ended.stderr


def test_folder_of_the_group_is_enough(folder: Path) -> None:
    """As in a pod with an fsGroup: the folder is somebody else's, and the group's."""
    socket_folder = folder / "run"
    socket_folder.mkdir()
    os.chown(socket_folder, OTHER_UID, OTHER_GID)
    socket_folder.chmod(0o770 | stat.S_ISGID)
    plain = stopped_parquet_sidecar(folder)
    sidecar = SidecarProcess(
        socket_folder,
        (*WITHOUT_RIGHTS, f"--groups={OTHER_GID}", *plain.command),
        environ={**plain.environ},
    )
    with sidecar.running():
        status = sidecar.socket.stat()

    assert (status.st_gid, stat.S_IMODE(status.st_mode)) == (OTHER_GID, 0o660)


def _lookup(sidecar: SidecarProcess, dimension: str) -> Reply:
    body = {"keys": [7], "timeout_ms": TIMEOUT_MS}
    return sidecar.post(f"/v1/dimensions/{dimension}/lookup", body)


def _word(reply: Reply) -> str:
    """What became of the one key, or of the whole request."""
    told = reply.json()
    return str(told["outcomes"][0] if reply.status == 200 else told["code"])


def _ask_until(sidecar: SidecarProcess, ends_at: float) -> list[tuple[Reply, float]]:
    found = []
    while (began_s := time.monotonic()) < ends_at:
        reply = _lookup(sidecar, "slow")
        found.append((reply, time.monotonic() - began_s))
    return found


def _probe_until(sidecar: SidecarProcess, ends_at: float) -> list[float]:
    took_s = []
    while (began_s := time.monotonic()) < ends_at:
        assert sidecar.health("/livez").status == 200
        took_s.append(time.monotonic() - began_s)
    return took_s

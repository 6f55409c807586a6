"""A node whose clock jumps, or that sleeps: time in a sidecar is what passed, not what is told."""

import http.client
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from tests.end_to_end.frozen import frozen
from tests.end_to_end.lifecycle_sidecar import lifecycle_sidecar
from tests.integration.trigger_messages import CHANNEL, make_triggers
from tools.debian import debian_package
from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import REQUEST_TIMEOUT_S, SERVE, SidecarProcess
from tools.processes.until import until

DAY_S = 86_400
TIMEOUT_MS = 500  # of what cannot be answered; what can is waited for
PATIENCE_MS = 20_000
SLACK_S = 5.0
MAX_STALENESS_S = 6.0  # the least that may be configured
CALLERS = 8


@dataclass(frozen=True, slots=True)
class WallClock:
    """The wall clock of one process, which a test may set; its monotonic one is the machine's."""

    file: Path

    def environ(self) -> dict[str, str]:
        """What lets a process have this clock."""
        library = next(debian_package("libfaketime").rglob("libfaketimeMT.so.1"))
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def step(self, seconds: int) -> None:
        """Let it be so much ahead of the machine's, from the next second on."""
        coming = self.file.with_suffix(".next")
        coming.write_text(f"{seconds:+d}")
        coming.replace(self.file)


def told_time(sidecar: SidecarProcess) -> float:
    """What time it is in the process: the date that it puts on its answers."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", sidecar.health_port, timeout=REQUEST_TIMEOUT_S
    )
    connection.request("GET", "/livez")
    date = connection.getresponse().headers["Date"]
    connection.close()
    return parsedate_to_datetime(date).timestamp()


def lookup(
    sidecar: SidecarProcess, dimension: str, *, timeout_ms: int = PATIENCE_MS
) -> tuple[str, int]:
    """Outcome and age of one key."""
    path = f"/v1/dimensions/{dimension}/lookup"
    told = sidecar.post(path, {"keys": [7], "timeout_ms": timeout_ms}).json()
    return told["outcomes"][0], told["ages_ms"][0]


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S], ids=["ahead", "back"])
def test_step_of_the_clock_changes_nothing(
    folder: Path, database: Database, *, step_s: int
) -> None:
    """Rows stay as old as they are, deadlines as long as they were, and liveness stays green."""
    clock = WallClock(folder / "clock")
    clock.step(0)
    sidecar = lifecycle_sidecar(folder, database, clock.environ())
    with sidecar.running():
        began_s = time.monotonic()
        assert lookup(sidecar, "quick")[0] == "fetched"
        clock.step(step_s)
        until(lambda: abs(told_time(sidecar) - time.time() - step_s) < DAY_S / 2)
        outcome, age_ms = lookup(sidecar, "quick")
        with database.locked("slow"):
            asked_s = time.monotonic()
            slow, _ = lookup(sidecar, "slow", timeout_ms=TIMEOUT_MS)
            waited_s = time.monotonic() - asked_s
        live = sidecar.health("/livez").status

    assert (outcome, slow, live) == ("hit", "timeout", 200)
    assert age_ms <= (time.monotonic() - began_s) * 1000
    assert TIMEOUT_MS / 1000 <= waited_s + 0.01 < TIMEOUT_MS / 1000 + SLACK_S


def test_sleeper_does_not_believe_what_it_had(folder: Path, database: Database) -> None:
    """After a sleep longer than its feed may be silent, no answer is a row that changed in it."""
    sidecar = _followed(folder, database)
    with sidecar.running() as process, ThreadPoolExecutor(CALLERS) as callers:
        until(lambda: _outcome(sidecar) == "hit")  # it is believed
        with frozen(process):
            database.execute("UPDATE followed SET name = 'changed' WHERE id = 7")
            asking = [callers.submit(_name, sidecar) for _ in range(CALLERS)]
            time.sleep(MAX_STALENESS_S + 1.0)  # the sleep itself: nothing is waited for
        names = {each.result() for each in asking}

    assert names == {"changed"}


def _followed(folder: Path, database: Database) -> SidecarProcess:
    """A sidecar that keeps a table's rows for long, and is told when one changes."""
    database.execute(
        "CREATE TABLE followed (id int8 PRIMARY KEY, name text)",
        "INSERT INTO followed VALUES (7, 'c7')",
    )
    make_triggers(database, "followed", ["id"])
    source = {"kind": "postgres", "dsn": database.dsn(), "table": "followed"}
    listen = {"channel": CHANNEL, "max_staleness": f"{MAX_STALENESS_S:g}s"}
    followed = {"source": source, "key": ["id"], "refresh": {"listen": listen}, "timeout": "20s"}
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps({"dimensions": {"followed": followed}}))
    return SidecarProcess(folder, (*SERVE, "--config", str(path)))


def _outcome(sidecar: SidecarProcess) -> str:
    told = sidecar.post("/v1/dimensions/followed/lookup", {"keys": [7]}).json()
    return str(told["outcomes"][0])


def _name(sidecar: SidecarProcess) -> str:
    reply = sidecar.get("/v1/dimensions/followed/rows/7")
    return str(reply.json()["name"])

"""The process of the sidecar: its signals, its standard descriptors, and its locale."""

import signal
import subprocess
from pathlib import Path

import pytest

from tools.processes.sidecar_process import SERVE, STOP_TIMEOUT_S, SidecarProcess, clean_environ
from tools.processes.until import until

LATIN = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_early_signal_ends_the_start(tmp_path: Path) -> None:
    """SIGTERM has a handler before it can serve, as the first process of a container needs it."""
    sidecar = SidecarProcess(tmp_path)
    process = subprocess.Popen(SERVE, cwd=sidecar.code, env=sidecar.whole_environ)
    try:
        until(sidecar.socket.exists)
        process.send_signal(signal.SIGTERM)

        assert process.wait(STOP_TIMEOUT_S) == 128 + signal.SIGTERM
        assert not sidecar.socket.exists()
    finally:
        process.kill()


def test_lost_terminal_drains(tmp_path: Path) -> None:
    """SIGHUP, which a terminal sends when it closes, ends the sidecar as SIGTERM does."""
    # The tests themselves may run under `nohup`.
    sidecar = SidecarProcess(tmp_path, command=("/usr/bin/env", "--default-signal=HUP", *SERVE))

    with sidecar.running(ends_by=signal.SIGHUP):
        pass

    assert '"event": "service.stopped"' in (tmp_path / "log").read_text()
    assert not sidecar.socket.exists()


def test_ignored_hangup_stays_ignored(tmp_path: Path) -> None:
    """Under `nohup`, the sidecar outlives its terminal."""
    sidecar = SidecarProcess(tmp_path, command=("/usr/bin/nohup", *SERVE))

    with sidecar.running() as process:
        process.send_signal(signal.SIGHUP)
        assert sidecar.get("/readyz").status == 200


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&- 2>/dev/full", "<&-"])
def test_closed_descriptors_are_no_sockets(tmp_path: Path, closed: str) -> None:
    """No socket takes the place of a closed standard descriptor; the sidecar serves and ends."""
    sidecar = SidecarProcess(
        tmp_path, command=("/bin/sh", "-c", f'exec "$@" {closed}', "sh", *SERVE)
    )

    with sidecar.running() as process:
        files = [Path(f"/proc/{process.pid}/fd/{number}").readlink() for number in range(3)]

    assert not any(str(file).startswith(("socket:", str(tmp_path / "sidelook"))) for file in files)


def test_any_locale_will_do(tmp_path: Path) -> None:
    """The files of the sidecar are UTF-8, also where the locale has another encoding."""
    sidecar = SidecarProcess(tmp_path, environ={**clean_environ(), **LATIN})

    with sidecar.running():
        assert sidecar.get("/").text.startswith("<!doctype html>")

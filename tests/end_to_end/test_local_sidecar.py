"""`Sidecar.local`: the service as a child of the driver, from its start to each of its ends."""

import fcntl
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from lookup_core.errors import BackendError, ConfigurationError, SidecarUnreachable
from spark_client import Sidecar
from spark_client.driver.local_sidecar import _LOG
from tests.end_to_end.sidecars import CUSTOMERS, ended, parquet
from tests.end_to_end.spark_program import SparkProgram
from tools.processes.sidecar_process import ROOT, SERVE, free_port
from tools.processes.until import until


@pytest.fixture(autouse=True)
def service_is_importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child finds the service in the checkout, which is not installed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def written(folder: Path, **settings: object) -> Path:
    """A configuration with customers from a file."""
    dimensions = {"customers": parquet(folder, "customers", CUSTOMERS, "id")}
    config = folder / "sidelook.yaml"
    config.write_text(json.dumps({"dimensions": dimensions, **settings}))  # JSON is YAML
    return config


@pytest.mark.real_path
def test_notebook_has_its_own_sidecar(spark_session: SparkSession, tmp_path: Path) -> None:
    """It serves the session whatever the file's listeners are, and the block's end removes it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = written(
            tmp_path,
            listen={"http": address, "health": "0.0.0.0:8816"},
            auth={"token_file": "/absent"},
        )
        with Sidecar.local(config) as dims:
            process, path = psutil.Process(dims.process.pid), Path(dims.url.removeprefix("unix://"))
            group, mode = os.getpgid(process.pid), path.parent.stat().st_mode & 0o777
            join = dims.lookup_join("customers", on={"n": "id"}, columns=["name"])
            records = spark_session.range(1000).withColumnRenamed("id", "n")
            rows = {row["n"]: row["name"] for row in records.transform(join).collect()}
            travelled = pickle.loads(pickle.dumps(dims))  # noqa: S301 -- our own

    assert rows == {number: f"customer {number}" for number in range(1000)}
    assert travelled == Sidecar(dims.url)
    assert (group, mode) == (process.pid, 0o700)  # an interrupt of the notebook's group spares it
    assert not process.is_running()
    assert not path.parent.exists()
    with pytest.raises(SidecarUnreachable, match=r"call Sidecar\.local again"):
        dims.lookup_join("customers", on="id")


def test_all_faults_are_raised(tmp_path: Path) -> None:
    """An invalid configuration is an error in the driver, with each fault of the file."""
    config = written(tmp_path, limits={"memory": "1", "connection": 2})

    with pytest.raises(ConfigurationError) as caught:
        Sidecar.local(config)

    faults = "\n".join(caught.value.faults)
    assert "limits.memory" in faults
    assert "connections" in faults


def test_unreachable_database_is_raised(tmp_path: Path) -> None:
    """The first failed attempt to describe a table is the error, with the sidecar's own words."""
    source = {"kind": "postgres", "dsn": f"postgresql://u@127.0.0.1:{free_port()}/x", "table": "t"}
    config = written(tmp_path, dimensions={"orders": {"source": source, "key": ["id"]}})

    with pytest.raises(BackendError, match=r'"orders": .*nothing listens at the address'):
        Sidecar.local(config)


def test_missing_service_names_the_package(tmp_path: Path) -> None:
    """Without the service in its environment, the error names the package to install."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o700)

    with pytest.raises(ModuleNotFoundError, match="pip install sidelook-service"):
        Sidecar.local(written(tmp_path), python=str(python))


def test_older_python_is_named(tmp_path: Path) -> None:
    """An interpreter before 3.11 has no option -P; the error states the version to use."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Unknown option: -P' >&2\nexit 2\n")
    python.chmod(0o700)

    with pytest.raises(ValueError, match=r"needs Python 3\.11 or newer; .*/python is older"):
        Sidecar.local(written(tmp_path), python=str(python))


def test_start_has_a_bound(tmp_path: Path) -> None:
    """A start that takes longer than its timeout is an error, and leaves no process."""
    with pytest.raises(SidecarUnreachable, match=r"not ready within 0\.001 s.*start_timeout"):
        Sidecar.local(written(tmp_path), start_timeout=0.001)

    children = psutil.Process().children()
    assert [each for each in children if "--until-eof" in each.cmdline()] == []


def is_unlocked(path: Path) -> bool:
    """Whether the last thread of the last process that locked the file has ended."""
    with path.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_next_start_removes_abandoned_folder(tmp_path: Path) -> None:
    """The folder of a killed driver is removed by the next start; folders in use are not."""
    config = written(tmp_path)
    command = [sys.executable, "-m", "tests.end_to_end.local_program", str(config), "hold"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        sidecar = psutil.Process(int(driver.stdout.readline()))
        abandoned = Path(sidecar.environ()["SIDELOOK_LISTEN__UNIX"]).parent
        with Sidecar.local(config) as dims:
            used = Path(dims.url.removeprefix("unix://")).parent
            was_there = abandoned.exists()
            driver.send_signal(signal.SIGKILL)
            until(lambda: is_unlocked(abandoned / _LOG))
            with Sidecar.local(config):
                found = [abandoned.exists(), used.exists()]

    assert was_there
    assert found == [False, True]


def test_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    """A sidecar whose driver gets SIGKILL exits, while a forked child of the driver runs on."""
    command = [sys.executable, "-m", "tests.end_to_end.local_program", str(written(tmp_path))]
    with subprocess.Popen([*command, "fork"], cwd=ROOT, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        sidecar, child = (psutil.Process(int(driver.stdout.readline())) for _ in range(2))
        driver.send_signal(signal.SIGKILL)

    try:
        until(lambda: not sidecar.is_running() or sidecar.status() == psutil.STATUS_ZOMBIE)
        assert child.is_running()
    finally:
        child.kill()


def test_ends_with_its_session(tmp_path: Path) -> None:
    """When the Spark session stops, the sidecar ends, while the driver runs on."""
    pid = SparkProgram("local_program", [str(written(tmp_path))]).output().result

    assert not psutil.pid_exists(pid)


def test_end_of_input_needs_a_pipe(tmp_path: Path) -> None:
    """`serve --until-eof` refuses a standard input that never ends."""
    with (tmp_path / "input").open("w+") as file:
        command = [*SERVE, "--until-eof", "--config", str(written(tmp_path))]
        refused = ended(command, stdin=file)

    assert refused.returncode == 78
    assert "standard input is no pipe" in refused.stderr

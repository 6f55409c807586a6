"""Spark standalone cluster: a master and workers on loopback, each worker like a node of its own.

Each node sees its own folder at the same path, as `/run/sidelook` is on separate machines: the
worker runs in a mount namespace of its own, which needs root or user namespaces.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from tools.processes.sidecar_process import ROOT, free_port
from tools.processes.until import until

SPARK_BIN = Path(pyspark.__path__[0]) / "bin"
_MASTER, _WORKER = (
    f"org.apache.spark.deploy.{each}" for each in ("master.Master", "worker.Worker")
)
_START_TIMEOUT_S = 90.0
_IN_NAMESPACE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


@dataclass(frozen=True, slots=True)
class StandaloneSpark:
    """A running cluster; every node has `nodes[n]` mounted at `mount_point`."""

    folder: Path
    nodes: Sequence[Path]
    port: int

    @property
    def mount_point(self) -> Path:
        """The path of the node's own folder, equal on all nodes."""
        return self.folder / "run"

    @property
    def master(self) -> str:
        """The URL of the master."""
        return f"spark://127.0.0.1:{self.port}"

    def environ(self) -> dict[str, str]:
        """The environment of drivers and workers: this Python with the checkout."""
        return {
            **os.environ,
            "PATH": f"{SPARK_BIN}{os.pathsep}{os.environ['PATH']}",
            "SPARK_HOME": str(SPARK_BIN.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
        }


@contextmanager
def standalone_spark(folder: Path, *, workers: int) -> Iterator[StandaloneSpark]:
    """A cluster with workers of one core and 1 GiB; all of it ends with the block."""
    nodes = [folder / f"node{number}" for number in range(workers)]
    cluster = StandaloneSpark(folder, nodes, free_port())
    for each in (*nodes, cluster.mount_point):
        each.mkdir()
    spark_class = str(SPARK_BIN / "spark-class")
    address = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        command = [spark_class, _MASTER, *address, "--port", str(cluster.port)]
        log = stack.enter_context(_running(command, folder / "master.log", cluster.environ()))
        until(lambda: "I have been elected leader" in log.read_text(), within_s=_START_TIMEOUT_S)
        logs = []
        for node in nodes:
            work = ("--work-dir", str(node / "work"), "--cores", "1", "--memory", "1g")
            command = [spark_class, _WORKER, *address, *work, cluster.master]
            isolated = _on_node(node, cluster.mount_point, command)
            logs.append(stack.enter_context(_running(isolated, node / "log", cluster.environ())))
        for log in logs:
            until(
                lambda log=log: "Successfully registered" in log.read_text(),  # type: ignore[misc]
                within_s=_START_TIMEOUT_S,
            )
        yield cluster


def _on_node(node: Path, mount_point: Path, command: Sequence[str]) -> list[str]:
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    unshare = ["unshare", *as_root, "--mount", "--propagation", "private"]
    return [*unshare, "sh", "-euc", _IN_NAMESPACE, "sh", str(node), str(mount_point), *command]


@contextmanager
def _running(command: Sequence[str], log: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environ, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield log
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with its executors
        process.wait()

"""Kubernetes on this machine, with the manifests and real Spark jobs: `python -m tools.cluster`.

Needs root and Go. Everything runs in namespaces of its own without a way out, and ends with this
process; after SIGKILL a folder and control groups remain, which the next run removes.
"""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.cluster.cluster import Cluster
from tools.cluster.images import NEWEST_SPARK, OLDEST_SPARK, write_images
from tools.cluster.life import Life
from tools.cluster.machine import command_inside, debian_folders, furnish, lack, run_folder
from tools.cluster.programs import KUBERNETES, BuildFailed, cluster_programs
from tools.debian import ToolUnavailable, debian_tool
from tools.image.podman import ROOT, EngineFailed
from tools.k8s.manifests import BASE
from tools.processes.steps import StepFailed, demand, step

_FAILURES = (BuildFailed, EngineFailed, ToolUnavailable)


def main(arguments: argparse.Namespace) -> int:
    """0 if every step succeeded, else 1."""
    try:
        if arguments.inside is not None:
            _play(arguments)
            return 0
        return _prepare(struck=arguments.faults)
    except StepFailed:
        return 1  # the step has printed the reason


def _prepare(*, struck: bool) -> int:
    with run_folder() as folder:
        with _available("machine: root and control groups are there, and programs for networks"):
            found = lack(os.geteuid())
            demand(not found, found)
            debian_tool("iproute2", "ip")
            debian_folders()
        with _available(f"programs: Kubernetes {KUBERNETES}, etcd, containerd and CoreDNS"):
            programs = cluster_programs()
        with _available("images: the sidecar, and jobs with Spark"):
            (pause,) = [each / "pause" for each in programs if (each / "pause").exists()]
            sparks = (NEWEST_SPARK, OLDEST_SPARK) if struck else (NEWEST_SPARK,)
            write_images(folder, pause, sparks)
        command = [sys.executable, "-m", "tools.cluster", *sys.argv[1:], "--inside", str(folder)]
        return subprocess.run(command_inside(folder, command), cwd=ROOT, check=False).returncode


@contextmanager
def _available(name: str) -> Iterator[None]:
    with step(name):
        try:
            yield
        except _FAILURES as error:
            raise StepFailed(str(error)) from error


def _play(arguments: argparse.Namespace) -> None:
    folder: Path = arguments.inside
    with step("namespaces: mounts, control groups and a network without a way out"):
        furnish(folder)
    cluster = Cluster(folder, cluster_programs())
    Life(cluster, sorted(folder.glob("*.tar")), arguments.manifests).play(struck=arguments.faults)


def _base(text: str) -> Path:
    folder = Path(text).resolve()
    for needed in ("kustomization.yaml", "executor-pod/executor-pod-template.yaml"):
        if not (folder / needed).exists():
            raise argparse.ArgumentTypeError(f"{folder} has no {needed}: give a copy of k8s/base")
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.cluster", description=__doc__)
    parser.add_argument("--manifests", type=_base, default=BASE, help="a copy of k8s/base")
    parser.add_argument("--faults", action="store_true", help="run a stream under faults, too")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    # SIGTERM ends it like Ctrl-C: everything is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(_arguments()))

"""Kubernetes on this machine, with the manifests and real Spark jobs: `python -m tools.cluster`.

Needs root and Go. Everything runs in namespaces of its own without a way out, and ends with this
process; after SIGKILL a folder and control groups remain, which the next run removes.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tools.cluster.cluster import Cluster
from tools.cluster.images import Archive, cluster_images
from tools.cluster.life import Life
from tools.cluster.machine import Tools, command_inside, furnish, lack
from tools.cluster.programs import KUBERNETES, MODULES, PROMETHEUS, BuildFailed, cluster_programs
from tools.compat.environments import InstallationFailed
from tools.debian import ToolUnavailable
from tools.image.build import BuildFailed as ImageBuildFailed
from tools.image.image import ROOT
from tools.image.runtime import container_runtime
from tools.k8s.manifests import BASE
from tools.processes.steps import StepFailed, demand, step

T = TypeVar("T")

_FAILURES = (BuildFailed, ImageBuildFailed, InstallationFailed, ToolUnavailable)


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
    with container_runtime() as runtime:
        with step("machine: root and control groups are there, and Debian's programs for networks"):
            found = lack(os.geteuid())
            demand(not found, found)
            tools = _available(Tools.fetched)
        with step(f"programs: Kubernetes {KUBERNETES}, etcd, containerd and CoreDNS"):
            modules = (*MODULES, PROMETHEUS) if struck else MODULES
            programs = _available(lambda: cluster_programs(modules))
        with step("images: the sidecar, and jobs with Spark"):
            (pause,) = [each / "pause" for each in programs if (each / "pause").exists()]
            images = _available(lambda: cluster_images(runtime, pause))
        parts = Parts(runtime.folder, tools, programs, images)
        command = [sys.executable, "-m", "tools.cluster", *sys.argv[1:], "--inside", parts.text()]
        inside = command_inside(runtime.folder, command)
        return subprocess.run(inside, cwd=ROOT, check=False).returncode


def _available(get: Callable[[], T]) -> T:
    try:
        return get()
    except _FAILURES as error:
        raise StepFailed(str(error)) from error


@dataclass(frozen=True, slots=True)
class Parts:
    """What is prepared outside of the namespaces."""

    folder: Path
    tools: Tools
    programs: Sequence[Path]
    images: Sequence[Archive]

    def text(self) -> str:
        """As an argument."""
        return json.dumps(
            {
                "folder": str(self.folder),
                "tools": [str(each) for each in self.tools.folders],
                "programs": [str(each) for each in self.programs],
                "images": [[each.name, str(each.file)] for each in self.images],
            }
        )

    @classmethod
    def parse(cls, text: str) -> "Parts":
        """From an argument."""
        given = json.loads(text)
        return cls(
            Path(given["folder"]),
            Tools(tuple(map(Path, given["tools"]))),
            [*map(Path, given["programs"])],
            [Archive(name, Path(file)) for name, file in given["images"]],
        )


def _play(arguments: argparse.Namespace) -> None:
    parts: Parts = arguments.inside
    with step("namespaces: mounts, control groups and a network without a way out"):
        furnish(parts.folder, parts.tools)
    cluster = Cluster(parts.folder, parts.programs)
    Life(cluster, parts.images, arguments.manifests).play(struck=arguments.faults)


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
    parser.add_argument("--inside", type=Parts.parse, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    # SIGTERM ends it like Ctrl-C: everything is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(_arguments()))

"""Rehearsal of the executor pod without a cluster: `python -m tools.rehearsal`, as root.

Builds the image, then runs the scenario in namespaces of its own: processes, mounts and network end
with it. After SIGKILL the folder, the control groups and the stages of a build remain; the next run
removes them.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from tools.debian import ToolUnavailable, debian_tool
from tools.image.build import BuildFailed, built_image
from tools.image.container import runtime_default
from tools.image.image import ROOT, Dockerfile, Image
from tools.image.runtime import ContainerRuntime, container_runtime
from tools.k8s.manifests import BASE
from tools.rehearsal.pod_manifests import PodManifests
from tools.rehearsal.rehearsal import Rehearsal
from tools.rehearsal.steps import StepFailed, demand, step

# All processes end with the scenario, and the scenario ends with this process.
OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"),
    *("--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def main(arguments: argparse.Namespace) -> int:
    """0 if every step succeeded, else 1."""
    try:
        if arguments.inside:
            _play(arguments)
            return 0
        return _prepare()
    except StepFailed:
        return 1  # the step has printed the reason


def _prepare() -> int:
    with step("machine: root, and Debian's programs for containers and networks"):
        demand(os.geteuid() == 0, "namespaces and memory limits need root: run it as root")
        _fetch_programs()
    dockerfile = Dockerfile.parse((ROOT / "Dockerfile").read_text())
    with container_runtime() as runtime:
        with step("image: the Dockerfile, executed in a Debian root"):
            image = _built(runtime, dockerfile)
        print(f"       the image holds {image.megabytes():.0f} MB", flush=True)
        folder = ("--inside", str(runtime.folder), str(image.root), str(runtime.runc))
        command = [sys.executable, "-m", "tools.rehearsal", *folder, *sys.argv[1:]]
        return subprocess.run([*OWN_NAMESPACES, *command], cwd=ROOT, check=False).returncode


def _fetch_programs() -> None:
    # The namespaces have no way to the archive.
    try:
        debian_tool("iproute2", "ip")
        debian_tool("prometheus", "prometheus")
        debian_tool("runc", "runc")
        runtime_default()
    except ToolUnavailable as error:
        raise StepFailed(str(error)) from error


def _built(runtime: ContainerRuntime, dockerfile: Dockerfile) -> Image:
    try:
        return built_image(runtime, dockerfile)
    except (BuildFailed, ToolUnavailable) as error:
        raise StepFailed(str(error)) from error


def _play(arguments: argparse.Namespace) -> None:
    folder, image_root, runc = arguments.inside
    runtime = ContainerRuntime(folder, runc)
    image = Image(image_root, Dockerfile.parse((ROOT / "Dockerfile").read_text()))
    with step(f"manifests: read from {arguments.manifests}"):
        manifests = PodManifests.read(arguments.manifests)
        rehearsal = Rehearsal.of(
            manifests,
            runtime=runtime,
            image=image,
            pace=arguments.pace,
            patience_s=arguments.patience,
        )
    rehearsal.play()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.rehearsal", description=__doc__)
    parser.add_argument("--manifests", type=Path, default=BASE, help="folder of the two manifests")
    parser.add_argument(
        "--pace", type=float, default=1.0, help="divides probe periods and the grace of a restart"
    )
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds for the start of the sidecar"
    )
    parser.add_argument("--inside", type=Path, nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    # SIGTERM ends it like Ctrl-C: everything is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(_arguments()))

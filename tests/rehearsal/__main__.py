"""`python -m tests.rehearsal`: the executor pod's life without a cluster, printed step by step.

Builds the image, then plays inside namespaces of its own: processes, mounts and network go with it
however it ends. Killed by SIGKILL it leaves its folder, its control groups and, in the middle of a
build, the build's container and stages; the next run removes them.
"""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.debian_tool import ToolUnavailable, debian_tool
from tests.image.container_runtime import ContainerRuntime, container_runtime
from tests.image.dockerfile import ROOT, Dockerfile
from tests.image.image import Image
from tests.image.image_build import BuildFailed, built_image
from tests.image.seccomp_profile import runtime_default
from tests.k8s.manifests import BASE
from tests.rehearsal.pod_manifests import PodManifests
from tests.rehearsal.rehearsal import Rehearsal
from tests.rehearsal.steps import StepFailed, demand, step

# All of it dies with the process that plays, and that one with us.
OWN_NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"),
    *("--net", "--pid", "--fork", "--kill-child", "--mount-proc"),
)


def main(arguments: argparse.Namespace) -> int:
    """0 if every step went well, else 1."""
    try:
        if arguments.inside:
            _play(arguments)
            return 0
        return _prepare()
    except StepFailed:
        return 1  # the step has said why


def _prepare() -> int:
    with step("machine: root, and Debian's programs for containers and networks"):
        demand(os.geteuid() == 0, "namespaces and memory limits are root's to give: run it as root")
        _fetch_programs()
    dockerfile = Dockerfile.parse((ROOT / "Dockerfile").read_text())
    with container_runtime() as runtime:
        with step("image: the Dockerfile's instructions, carried out in a Debian root"):
            image = _built(runtime, dockerfile)
        print(f"       the image holds {image.megabytes():.0f} MB", flush=True)  # noqa: T201
        folder = ("--inside", str(runtime.folder), str(image.root), str(runtime.runc))
        command = [sys.executable, "-m", "tests.rehearsal", *folder, *sys.argv[1:]]
        return subprocess.run([*OWN_NAMESPACES, *command], cwd=ROOT, check=False).returncode


def _fetch_programs() -> None:
    # In there is no way to the archive.
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
    parser = argparse.ArgumentParser(prog="python -m tests.rehearsal", description=__doc__)
    parser.add_argument("--manifests", type=Path, default=BASE, help="folder of the two manifests")
    parser.add_argument(
        "--pace", type=float, default=1.0, help="divides periods of probes and a restart's grace"
    )
    parser.add_argument(
        "--patience", type=float, default=120.0, help="seconds that the sidecar has for its start"
    )
    parser.add_argument("--inside", type=Path, nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    # Told to end, it ends as by Ctrl-C: what it made goes.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main(_arguments()))

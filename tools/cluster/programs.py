"""Programs of a Kubernetes cluster, built once from their Go modules into the user's cache.

The first build takes ten minutes on two cores and 5 GB, which are deleted afterwards.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.maven_libraries import download_cache
from tools.debian import ToolUnavailable

SOURCES = Path(__file__).parent / "go"  # a folder for each module
KUBERNETES, OLDEST_KUBERNETES = "1.37.2", "1.29.6"  # the oldest with native sidecars
_FOLDER = "cluster"  # in the cache
_LINKS = (  # names of the program `kubernetes`
    *("kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"),
    *("kubectl", "kubelet"),
)
_NO_GO = "there is no go on the PATH; install Go 1.26 or newer"
_CONTAINERD = "github.com/containerd/containerd/v2/cmd"


class BuildFailed(Exception):
    """A program cannot be built; the text is the end of the compiler's output."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Go module with the programs that are built from it."""

    name: str  # of its folder
    minutes: int  # that a build takes on two cores
    programs: tuple[tuple[str, str], ...]  # (name, package)
    kubernetes: str = ""  # the version that the programs report
    links: tuple[str, ...] = ()  # to the first program

    @property
    def digest(self) -> str:
        """Of all that decides the programs."""
        files = sorted((SOURCES / self.name).iterdir())
        parts = [repr(self).encode(), *(file.read_bytes() for file in files)]
        return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]

    def commands(self, target: Path) -> Iterator[list[str]]:
        """Build each program into a folder."""
        flags = "-s -w"
        if self.kubernetes:
            major, minor, _ = self.kubernetes.split(".")
            parts = {"Version": f"v{self.kubernetes}", "Major": major, "Minor": minor}
            for part, text in parts.items():
                flags += f" -X k8s.io/component-base/version.git{part}={text}"
        for name, package in self.programs:
            yield ["go", "build", "-ldflags", flags, "-o", str(target / name), package]


MODULES = (
    Module("pause", 1, (("pause", "."),)),
    Module("etcd", 1, (("etcd", "go.etcd.io/etcd/server/v3"),)),
    Module("coredns", 1, (("coredns", "."),)),
    Module(
        "containerd",
        2,
        tuple(
            (each, f"{_CONTAINERD}/{each}")
            for each in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
    ),
    Module("kubernetes", 5, (("kubernetes", "."),), kubernetes=KUBERNETES, links=_LINKS),
)
OLDEST_API_SERVER = Module(
    "kubernetes-1.29",
    3,
    (("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),),
    kubernetes=OLDEST_KUBERNETES,
)


def cluster_programs(
    modules: Iterable[Module] = MODULES, *, say: Callable[[str], None] = print
) -> list[Path]:
    """The folder with the programs of each module, which the first call builds under a lock.

    Raises ToolUnavailable without Go or a registry, and BuildFailed.
    """
    modules = tuple(modules)
    with locked_cache() as cache:
        wanted = {cache / f"{each.name}-{each.digest}": each for each in modules}
        missing = {folder: each for folder, each in wanted.items() if not folder.exists()}
        if missing:
            minutes = sum(each.minutes for each in missing.values())
            say(f"building {len(missing)} of {len(modules)} modules, about {minutes} minutes")
            _build(missing, cache, say)
    return list(wanted)


@contextmanager
def locked_cache() -> Iterator[Path]:
    """The folder of the cluster in the user's cache, for one process at a time."""
    # A lock of its own: downloads of other programs do not wait for a build.
    with download_cache(os.environ) as downloads:
        folder = downloads / _FOLDER
        folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def _build(missing: dict[Path, Module], cache: Path, say: Callable[[str], None]) -> None:
    if shutil.which("go") is None:
        raise ToolUnavailable(_NO_GO)
    for unfinished in cache.glob("build-*"):  # of a build that was killed
        shutil.rmtree(unfinished)
    with tempfile.TemporaryDirectory(prefix="build-", dir=cache) as name:
        work = Path(name)
        for folder, module in missing.items():
            target = work / folder.name
            target.mkdir()
            for command in module.commands(target):
                say(f"  {module.name}: {Path(command[-2]).name}")
                _compile(command, SOURCES / module.name, work)
            for link in module.links:
                (target / link).symlink_to(module.programs[0][0])
            for former in cache.glob(f"{module.name}-{'?' * 16}"):
                shutil.rmtree(former)
            target.rename(folder)


def _compile(command: list[str], folder: Path, work: Path) -> None:
    environ = os.environ | {
        "CGO_ENABLED": "0",
        "GOMODCACHE": str(work / "modules"),
        "GOCACHE": str(work / "cache"),
        "GOFLAGS": "-mod=readonly -modcacherw -trimpath -buildvcs=false -tags=providerless",
        "GOTOOLCHAIN": "local",
    }
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(f"{' '.join(command)}: {done.stderr[-2000:]}")

"""Podman of Debian, unpacked into the user's cache: builds images and runs containers as root.

Debian with Python stands in for the slim Python image, where no registry is available. Images and
the layers of builds stay in the cache.
"""

import ast
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.maven_libraries import download_cache
from tools.debian import ToolUnavailable, debian_package, debian_tool

ROOT = Path(__file__).parents[2]
LOCK_FILE = "requirements/service.txt"
SIDECAR = "localhost/sidelook:dev"
_PYTHON = "localhost/python:3.11-slim"
_MOST_IMAGES = 40  # with the layers of builds; more are pruned
# With the libraries that they need.
_PACKAGES = (
    *("podman", "conmon", "runc", "golang-github-containers-common"),
    *("libgpgme11", "libassuan0", "libsubid4", "libseccomp2", "libdevmapper1.02.1"),
)
_SECCOMP_PROFILE = "usr/share/containers/seccomp.json"  # `RuntimeDefault` of Debian's engines
_SUITE = "bookworm"  # as in the slim image of Python 3.11
_EXCLUDED = ("doc", "man", "locale", "info")
_BASE_TIMEOUT_S = 900.0
_TIMEOUT_S = 600.0
_POLICY = {"default": [{"type": "insecureAcceptAnything"}]}
_SETTINGS = """
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "runc"
conmon_path = ["{conmon}"]
[engine.runtimes]
runc = ["{runc}"]
[containers]
netns = "host"
seccomp_profile = "{seccomp}"
# Less than the defaults, which only a process with the right to raise limits can set.
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
"""
_STORAGE = """
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


class EngineFailed(Exception):
    """A command of the engine failed; the text is the command and its output."""


@dataclass(frozen=True, slots=True)
class Podman:
    """The engine with its environment variables."""

    environ: Mapping[str, str]

    @classmethod
    def fetched(cls) -> "Podman":
        """Raises ToolUnavailable without Debian's archive."""
        packages = {name: debian_package(name) / "usr" for name in _PACKAGES}
        with download_cache(os.environ) as cache:
            folder = cache / "podman"
            _configure(folder, packages)
        libraries = [each for usr in packages.values() for each in (usr / "lib").glob("*-linux-*")]
        programs = [usr / name for usr in packages.values() for name in ("bin", "sbin")]
        return cls(
            {
                **os.environ,
                "HOME": str(folder),  # of the policy
                "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
                "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
                "CONTAINERS_CONF": str(folder / "containers.conf"),
                "CONTAINERS_STORAGE_CONF": str(folder / "storage.conf"),
                "CONTAINERS_REGISTRIES_CONF": str(folder / "registries.conf"),
            }
        )

    def execute(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end, whatever its exit status."""
        return subprocess.run(
            ["podman", *arguments],
            env=dict(self.environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
        )

    def output(self, *arguments: str) -> str:
        """The output of a command; raises EngineFailed."""
        ended = self.execute(*arguments)
        if ended.returncode:
            raise EngineFailed(f"podman {' '.join(arguments)}: {ended.stdout}{ended.stderr}")
        return ended.stdout.strip()

    def build(self, name: str, folder: Path, *options: str, wheels: Sequence[Path] = ()) -> None:
        """Build an image; pip finds `wheels` besides those of its index. Raises EngineFailed."""
        with _pip_options(wheels) as volumes:
            fixed = ("--format", "docker", "--timestamp", "0", "--pull=never", "--tag", name)
            self.output("build", "--quiet", *fixed, *volumes, *options, str(folder))

    def build_sidecar(self, folder: Path = ROOT, *options: str, name: str = SIDECAR) -> None:
        """Build the image of the Dockerfile; raises EngineFailed and ToolUnavailable."""
        if len(self.output("images", "--all", "--quiet").splitlines()) > _MOST_IMAGES:
            self.output("image", "prune", "--force")
        link = 'ln -s /usr/bin/python3 "$1/usr/local/bin/python"'  # where the slim image has it
        self.import_debian(_PYTHON, "python3", "python3-venv", "ca-certificates", hook=link)
        self.build(name, folder, f"--build-arg=PYTHON_IMAGE={_PYTHON}", *options)

    def import_debian(self, name: str, *packages: str, hook: str = "true") -> None:
        """Make a Debian with these packages an image, unless there is one of this name.

        `hook` is run with its root as first argument. Raises ToolUnavailable.
        """
        key = hashlib.sha256("\0".join((*packages, hook)).encode()).hexdigest()[:16]
        if not self.execute("image", "exists", f"{name}-{key}").returncode:
            self.output("tag", f"{name}-{key}", name)
            return
        with tempfile.TemporaryDirectory(prefix="sidelook-base-") as folder:
            archive = Path(folder) / "base.tar"
            _debootstrap(archive, packages, hook)
            self.output("import", "--quiet", str(archive), f"{name}-{key}")
        self.output("tag", f"{name}-{key}", name)

    @contextmanager
    def mounted(self, name: str) -> Iterator[Path]:
        """The root file system of an image."""
        yield Path(self.output("image", "mount", name))
        self.output("image", "umount", name)

    @contextmanager
    def running(self, *arguments: str) -> Iterator[str]:
        """The id of a container started with these arguments of `podman run`; removes it."""
        container = self.output("run", "--detach", *arguments)
        try:
            yield container
        finally:
            self.output("rm", "--force", "--time=0", container)


def _configure(folder: Path, packages: Mapping[str, Path]) -> None:
    settings = _SETTINGS.format(
        conmon=packages["conmon"] / "bin/conmon",
        runc=packages["runc"] / "sbin/runc",
        seccomp=packages["golang-github-containers-common"].parent / _SECCOMP_PROFILE,
    )
    policy = folder / ".config" / "containers" / "policy.json"
    policy.parent.mkdir(parents=True, exist_ok=True)
    policy.write_text(json.dumps(_POLICY))
    (folder / "containers.conf").write_text(settings)
    (folder / "storage.conf").write_text(_STORAGE.format(folder=folder))
    (folder / "registries.conf").write_text("")


@contextmanager
def _pip_options(wheels: Sequence[Path]) -> Iterator[list[str]]:
    """Volumes that give pip in a build the settings of this machine's pip, and the wheels."""
    settings = _pip_settings()
    links = [settings[name] for name in ("find-links",) if name in settings]
    settings["find-links"] = " ".join([*links, *map(str, wheels)])
    files = [Path(text) for text in (*settings.values(), *links) if text.startswith("/")]
    mounted = {each for each in (*files, *wheels) if each.exists()}
    with tempfile.TemporaryDirectory(prefix="sidelook-pip-") as folder:
        file = Path(folder) / "pip.conf"
        lines = [f"{name} = {text}" for name, text in settings.items()]
        file.write_text("\n".join(["[global]", *lines]))
        volumes = [f"--volume={each}:{each}:ro" for each in sorted(mounted)]
        yield ["--network=host", f"--volume={file}:/etc/pip.conf:ro", *volumes]


def _pip_settings() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pairs = (line.partition("=") for line in listed.splitlines())
    settings = {name.rpartition(".")[2]: str(ast.literal_eval(text)) for name, _, text in pairs}
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE"):
        settings.setdefault("cert", bundle)
    return settings


def _debootstrap(archive: Path, packages: Sequence[str], hook: str) -> None:
    program = debian_tool("mmdebstrap", "mmdebstrap")
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _EXCLUDED]
    made = subprocess.run(
        [
            *("perl", str(program), "--mode=root", "--variant=minbase", "--format=tar", *excluded),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            *(f"--include={','.join(packages)}", f"--customize-hook={hook}"),
            # Java's package links a page into this folder.
            '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
            *(_SUITE, str(archive)),
        ],
        # It calls a program of its own folder.
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_BASE_TIMEOUT_S,
    )
    if made.returncode:
        raise ToolUnavailable(f"mmdebstrap {_SUITE}: {made.stderr[-2000:]}")

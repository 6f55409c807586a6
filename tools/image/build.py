"""Image builder: executes the Dockerfile in a Debian root file system, without an engine.

Debian with Python stands in for the slim Python image, where no registry is available. Supports
the instructions of this project's Dockerfile.
"""

import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from demo.maven_libraries import download_cache
from tools.debian import ToolUnavailable, debian_tool
from tools.image.container import BUILD_CAPABILITIES, Container, Mount
from tools.image.image import (
    BASE_PATH,
    LOCK_FILE,
    ROOT,
    Dockerfile,
    DockerIgnore,
    Image,
    Instruction,
)
from tools.image.runtime import ContainerRuntime

KEPT_IMAGES = 2
_UNFINISHED = "stages-"
_SUITE = "bookworm"  # as in the slim image of Python 3.11
_EXCLUDED = ("doc", "man", "locale", "info")
_BASE_TIMEOUT_S = 300
_PIP_FOLDER = "/mnt"  # empty in the root file system
_PROXY_VARIABLES = (
    *("http_proxy", "https_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)


class BuildFailed(Exception):
    """An instruction failed; the text is the instruction and its output."""


@dataclass(slots=True)
class _Stage:
    root: Path
    folder: str = "/"  # the working directory
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})

    def inside(self, path: str) -> Path:
        """A path relative to the working directory of the stage, as a path of this machine."""
        return self.root / str(PurePosixPath(self.folder, path)).lstrip("/")


@dataclass(frozen=True, slots=True)
class Context:
    """What an image is built from."""

    base: Path  # an archive, which stands in for the image of FROM
    folder: Path = ROOT  # of the files that are copied
    wheels: tuple[Path, ...] = ()  # that pip finds besides those of its index
    environ: Mapping[str, str] = field(default_factory=dict)  # of the image of FROM

    def digest(self, dockerfile: Dockerfile) -> str:
        """Of all inputs of the build."""
        sources = sorted(dockerfile.copied_from_tree())
        files = [
            file for source in sources for file in sorted(_sent(self.folder / source, self.folder))
        ]
        texts = [str(dockerfile).encode(), str(self.base.stat().st_mtime_ns).encode()]
        texts += [text for file in files for text in (bytes(file), file.read_bytes())]
        texts += [str(self.environ).encode(), *(wheel.read_bytes() for wheel in self.wheels)]
        return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def built_image(
    runtime: ContainerRuntime,
    dockerfile: Dockerfile,
    context: Context | None = None,
    *,
    name: str = "image",
) -> Image:
    """Build the image, unless the cache has one of this name and the same inputs.

    Without a context, it is that of the sidecar. Raises BuildFailed, and ToolUnavailable without a
    Debian archive.
    """
    context = context or Context(PYTHON.archive())
    with download_cache(os.environ) as cache:
        root = cache / f"{name}-{context.digest(dockerfile)}"
        if not root.exists():
            _forget_all_but_newest(cache, name)
            _forget_unfinished(cache)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=cache) as folder:
                _build(dockerfile, _Build(runtime, Path(folder), cache, context)).rename(root)
            root.touch()  # the newest images are kept, and files of an image may have no time
    return Image(root, dockerfile)


def packed_image(image: Image) -> Path:
    """The root of an image of the cache as an archive, for other images to be built from."""
    with download_cache(os.environ):
        archive = image.root.with_name(f"packed-{image.root.name}.tar")
        if not archive.exists():
            name = image.root.name.rpartition("-")[0]
            for former in archive.parent.glob(f"packed-{name}-*"):
                former.unlink()
            _pack(image.root, archive)
    return archive


def _forget_all_but_newest(cache: Path, name: str) -> None:
    # The newest images may be in use.
    images = sorted(cache.glob(f"{name}-*"), key=lambda image: image.stat().st_mtime)
    for image in images[:-KEPT_IMAGES]:
        shutil.rmtree(image)


def _forget_unfinished(cache: Path) -> None:
    # This process holds the lock of the cache: their builds were killed.
    for stages in cache.glob(f"{_UNFINISHED}*"):
        shutil.rmtree(stages)


def _build(dockerfile: Dockerfile, build: "_Build") -> Path:
    for instruction in dockerfile.instructions:
        if instruction.stage:
            build.carry_out(instruction)
    return build.stages[dockerfile.instructions[-1].stage].root


@dataclass(frozen=True, slots=True)
class _Build:
    runtime: ContainerRuntime
    folder: Path  # for the stages
    cache: Path
    context: Context
    stages: dict[str, _Stage] = field(default_factory=dict)  # {name: its current state}

    def carry_out(self, instruction: Instruction) -> None:
        """Execute one instruction; those about running the image change no file."""
        if instruction.keyword == "FROM":
            root = self.folder / instruction.stage
            self.stages[instruction.stage] = stage = _Stage(root)
            if instruction.value.split()[0] == "scratch":
                root.mkdir()
                return
            stage.environ |= self.context.environ
            _unpack(self.context.base, root)
            return
        if not instruction.stage:
            return
        stage = self.stages[instruction.stage]
        if instruction.keyword == "WORKDIR":
            stage.folder = instruction.value
            stage.inside("").mkdir(parents=True, exist_ok=True)
        elif instruction.keyword in {"ENV", "ARG"}:
            stage.environ |= instruction.variables()
        elif instruction.keyword == "COPY":
            self._copy(instruction, stage)
        elif instruction.keyword == "RUN" and LOCK_FILE in instruction.value:
            self._run_once(instruction, stage)
        elif instruction.keyword == "RUN":
            self._run(instruction, stage)

    def _copy(self, instruction: Instruction, stage: _Stage) -> None:
        *options, source, target = instruction.arguments()
        if options:
            origin = self.stages[options[0].removeprefix("--from=")]
            # Hard links: no stage changes a file after another stage has copied it.
            ends = (f"{origin.inside(source)}/.", str(stage.inside(target)))
            subprocess.run(["/bin/cp", "--archive", "--link", *ends], check=True)
        else:
            self._copy_from_tree(source, stage.inside(target))

    def _run_once(self, instruction: Instruction, stage: _Stage) -> None:
        # Like a layer of an engine: the installed packages are kept until an input changes.
        inputs = (instruction.value.encode(), (ROOT / LOCK_FILE).read_bytes())
        base = str(self.context.base.stat().st_mtime_ns).encode()
        name = hashlib.sha256(b"\0".join((base, *inputs))).hexdigest()[:16]
        kept = self.cache / f"layer-{name}.tar"
        if kept.exists():
            shutil.rmtree(stage.root)
            _unpack(kept, stage.root)
            return
        self._run(instruction, stage)
        for outdated in self.cache.glob("layer-*"):
            outdated.unlink()
        _pack(stage.root, kept)

    def _run(self, instruction: Instruction, stage: _Stage) -> None:
        index = _package_index(self.context.wheels)
        container = Container(
            stage.root,
            ["/bin/sh", "-ec", instruction.value],
            environ={**stage.environ, **index.environ},
            folder=stage.folder,
            capabilities=BUILD_CAPABILITIES,
            mounts=index.mounts,
        )
        status, printed = self.runtime.output("build", container)
        if status:
            raise BuildFailed(f"{instruction.value}: {status}\n{printed}")

    def _copy_from_tree(self, source: str, target: Path) -> None:
        origin = self.context.folder / source
        for file in _sent(origin, self.context.folder):
            copied = target / file.relative_to(origin)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copied)


def _sent(origin: Path, folder: Path) -> list[Path]:
    ignored = folder / ".dockerignore"
    ignore = DockerIgnore.parse(ignored.read_text() if ignored.exists() else "")
    files = [origin] if origin.is_file() else filter(Path.is_file, origin.rglob("*"))
    return [file for file in files if ignore.lets_through(str(file.relative_to(folder)))]


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir()
    command = ["/bin/tar", "--extract", "--file", str(archive), "--directory", str(folder)]
    subprocess.run(command, check=True)


def _pack(folder: Path, archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    command = ["/bin/tar", "--create", "--file", str(unfinished), "--directory", str(folder), "."]
    subprocess.run(command, check=True)
    unfinished.rename(archive)


@dataclass(frozen=True, slots=True)
class _PackageIndex:
    environ: dict[str, str]
    mounts: tuple[Mount, ...]


def _package_index(wheels: Sequence[Path]) -> _PackageIndex:
    # The variables and files that give pip in the root the index of this machine's pip.
    environ = {name: os.environ[name] for name in _PROXY_VARIABLES if name in os.environ}
    mounts = [Mount(_PIP_FOLDER), Mount("/etc/resolv.conf", Path("/etc/resolv.conf"))]
    for name, text in _pip_settings().items():
        file = Path(text)
        if file.is_absolute() and file.exists():
            mounts.append(Mount(f"{_PIP_FOLDER}/{name}", file))
            environ[name] = f"{_PIP_FOLDER}/{name}"
        else:
            environ[name] = text
    if wheels:
        mounts += [Mount(f"{_PIP_FOLDER}/{each.name}", each) for each in wheels]
        environ["PIP_FIND_LINKS"] = _PIP_FOLDER
    return _PackageIndex(environ, tuple(mounts))


def _pip_settings() -> dict[str, str]:
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    settings = {}
    for line in listed.splitlines():
        name, _, text = line.partition("=")
        variable = name.rpartition(".")[2].replace("-", "_").upper()
        settings[f"PIP_{variable}"] = str(ast.literal_eval(text))
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE"):
        settings.setdefault("PIP_CERT", bundle)
    return settings


@dataclass(frozen=True, slots=True)
class DebianBase:
    """Debian with these packages; `hook` is run with its root as first argument."""

    name: str
    packages: tuple[str, ...]
    hook: str = "true"

    def archive(self) -> Path:
        """The root as an archive of the cache; raises ToolUnavailable without a Debian archive."""
        program = debian_tool("mmdebstrap", "mmdebstrap")
        options = self._options()
        key = hashlib.sha256("\0".join(options).encode()).hexdigest()[:16]
        with download_cache(os.environ) as cache:
            archive = cache / f"base-{self.name}-{key}.tar"
            if not archive.exists():
                for former in cache.glob(f"base-{self.name}-*"):
                    former.unlink()
                _debootstrap(archive, program, options)
        return archive

    def _options(self) -> list[str]:
        excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _EXCLUDED]
        return [
            *("--mode=root", "--variant=minbase", "--format=tar", *excluded),
            "--dpkgopt=path-include=/usr/share/doc/*/copyright",
            *(f"--include={','.join(self.packages)}", f"--customize-hook={self.hook}"),
            # Java's package links a page into this folder.
            '--essential-hook=mkdir -p "$1/usr/share/man/man1"',
            _SUITE,
        ]


def _debootstrap(archive: Path, program: Path, options: Sequence[str]) -> None:
    unfinished = archive.with_suffix(".unfinished")
    made = subprocess.run(
        ["perl", str(program), *options, str(unfinished)],
        # It calls a program of its own folder.
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=_BASE_TIMEOUT_S,
    )
    if made.returncode:
        raise ToolUnavailable(f"mmdebstrap {_SUITE}: {made.stderr[-2000:]}")
    unfinished.rename(archive)


PYTHON = DebianBase(
    "python",
    ("python3", "python3-venv", "ca-certificates"),
    # The slim image has its interpreter there.
    hook='ln -s /usr/bin/python3 "$1/usr/local/bin/python"',
)

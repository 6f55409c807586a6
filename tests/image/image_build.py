"""The image without an engine: the Dockerfile's own instructions, carried out in a Debian root.

Knows the instructions that this project's Dockerfile has; how the image is run is `image`'s part.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from demo.maven_libraries import download_cache
from tests.image.container import BUILD_CAPABILITIES, Container
from tests.image.container_runtime import ContainerRuntime
from tests.image.debian_base import debian_base
from tests.image.dockerfile import ROOT, Dockerfile, DockerIgnore, Instruction
from tests.image.image import BASE_PATH, Image
from tests.image.image_rules import LOCK_FILE
from tests.image.package_index import package_index

KEPT_IMAGES = 2
_UNFINISHED = "stages-"


class BuildFailed(Exception):
    """An instruction failed; the text is the instruction and what it printed."""


@dataclass(slots=True)
class _Stage:
    root: Path
    folder: str = "/"  # the working directory
    environ: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})

    def inside(self, path: str) -> Path:
        """A path of the image, seen from the working directory, as it lies here."""
        return self.root / str(PurePosixPath(self.folder, path)).lstrip("/")


def built_image(runtime: ContainerRuntime, dockerfile: Dockerfile) -> Image:
    """Carry out every instruction, unless the cache has an image of the same inputs.

    Raises BuildFailed, and ToolUnavailable where there is no Debian archive.
    """
    base = debian_base()
    with download_cache(os.environ) as cache:
        root = cache / f"image-{_digest(dockerfile, base)}"
        if not root.exists():
            _forget_all_but_newest(cache)
            _forget_unfinished(cache)
            with tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=cache) as folder:
                _build(dockerfile, _Build(runtime, Path(folder), cache, base)).rename(root)
    return Image(root, dockerfile)


def _digest(dockerfile: Dockerfile, base: Path) -> str:
    sources = sorted(dockerfile.copied_from_tree())
    files = [file for source in sources for file in sorted(_sent(ROOT / source))]
    texts = [str(dockerfile).encode(), str(base.stat().st_mtime_ns).encode()]
    texts += [text for file in files for text in (bytes(file), file.read_bytes())]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


def _forget_all_but_newest(cache: Path) -> None:
    # Somebody may run the newest ones at this moment.
    images = sorted(cache.glob("image-*"), key=lambda image: image.stat().st_mtime)
    for image in images[:-KEPT_IMAGES]:
        shutil.rmtree(image)


def _forget_unfinished(cache: Path) -> None:
    # We have the cache's lock: whoever made them was killed.
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
    base: Path
    stages: dict[str, _Stage] = field(default_factory=dict)  # {name: as far as it has come}

    def carry_out(self, instruction: Instruction) -> None:
        """One instruction; those that say how to run the image change nothing of its files."""
        if instruction.keyword == "FROM":
            root = self.folder / instruction.stage
            self.stages[instruction.stage] = _Stage(root)
            _unpack(self.base, root)
            return
        stage = self.stages[instruction.stage]
        if instruction.keyword == "WORKDIR":
            stage.folder = instruction.value
            stage.inside("").mkdir(parents=True, exist_ok=True)
        elif instruction.keyword == "ENV":
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
            # By links: no stage changes a file any more that another one takes.
            ends = (str(origin.inside(source)), str(stage.inside(target)))
            subprocess.run(["/bin/cp", "--archive", "--link", *ends], check=True)
        else:
            _copy_from_tree(source, stage.inside(target))

    def _run_once(self, instruction: Instruction, stage: _Stage) -> None:
        # As an engine does: what the packages' installation made is kept while nothing changes.
        inputs = (instruction.value.encode(), (ROOT / LOCK_FILE).read_bytes())
        base = str(self.base.stat().st_mtime_ns).encode()
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
        index = package_index()
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


def _copy_from_tree(source: str, target: Path) -> None:
    origin = ROOT / source
    for file in _sent(origin):
        copied = target / file.relative_to(origin)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copied)


def _sent(origin: Path) -> list[Path]:
    ignore = DockerIgnore.parse((ROOT / ".dockerignore").read_text())
    files = [origin] if origin.is_file() else filter(Path.is_file, origin.rglob("*"))
    return [file for file in files if ignore.lets_through(str(file.relative_to(ROOT)))]


def _unpack(archive: Path, folder: Path) -> None:
    folder.mkdir()
    command = ["/bin/tar", "--extract", "--file", str(archive), "--directory", str(folder)]
    subprocess.run(command, check=True)


def _pack(folder: Path, archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    command = ["/bin/tar", "--create", "--file", str(unfinished), "--directory", str(folder), "."]
    subprocess.run(command, check=True)
    unfinished.rename(archive)

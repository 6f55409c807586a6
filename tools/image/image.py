"""Dockerfile and `.dockerignore` parsers, and the image that a Dockerfile describes.

They support the subset of both languages that this project uses.
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.image.container import Container

ROOT = Path(__file__).parents[2]
LOCK_FILE = "requirements/service.txt"
BASE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction with its lines joined."""

    keyword: str
    value: str
    stage: str  # its build stage; empty before the first FROM

    def arguments(self) -> list[str]:
        """The words of the exec form, or of the shell form."""
        if self.value.startswith("["):
            exec_form: list[str] = json.loads(self.value)
            return exec_form
        return shlex.split(self.value)

    def variables(self) -> dict[str, str]:
        """The pairs of an ENV or a LABEL."""
        pairs = (word.partition("=") for word in self.arguments())
        return {name: value for name, _, value in pairs}


@dataclass(frozen=True, slots=True)
class Dockerfile:
    """All instructions in their order."""

    instructions: tuple[Instruction, ...]

    @classmethod
    def parse(cls, text: str) -> "Dockerfile":
        """Parse the text; comments are removed, continued lines are joined."""
        lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
        instructions, stage = [], ""
        for line in filter(str.strip, joined.splitlines()):
            keyword, _, value = line.strip().partition(" ")
            if keyword == "FROM":
                stage = value.split()[-1]
            instructions.append(Instruction(keyword, value.strip(), stage))
        return cls(tuple(instructions))

    def of(self, keyword: str, *, stage: str | None = None) -> list[Instruction]:
        """The instructions of one kind, in one stage or in all."""
        return [
            each
            for each in self.instructions
            if each.keyword == keyword and stage in {None, each.stage}
        ]

    def last(self, keyword: str) -> Instruction:
        """The instruction of this kind that takes effect: the last one of the last stage."""
        return self.of(keyword, stage=self.instructions[-1].stage)[-1]

    def copied_from_tree(self) -> set[str]:
        """The paths of the project that are copied into the image."""
        copies = [each for each in self.of("COPY") if not each.value.startswith("--from")]
        return {path for each in copies for path in each.arguments()[:-1]}


@dataclass(frozen=True, slots=True)
class DockerIgnore:
    """The patterns of a `.dockerignore`; the last match of a path decides."""

    patterns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "DockerIgnore":
        """Parse the text; comments and empty lines are skipped."""
        lines = (line.strip() for line in text.splitlines())
        return cls(tuple(line for line in lines if line and not line.startswith("#")))

    def lets_through(self, path: str) -> bool:
        """Whether the file of the project is sent to the build."""
        is_sent = True
        for pattern in self.patterns:
            if re.fullmatch(_as_regular_expression(pattern.removeprefix("!")), path):
                is_sent = pattern.startswith("!")
        return is_sent


def _as_regular_expression(pattern: str) -> str:
    # A pattern that matches a folder matches all files in it.
    translated = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    return f"{translated}(/.*)?"


@dataclass(frozen=True, slots=True)
class Image:
    """The root file system of a built image, and its Dockerfile."""

    root: Path
    dockerfile: Dockerfile

    @property
    def environ(self) -> dict[str, str]:
        """The image's variables."""
        variables = self.dockerfile.last("ENV").variables()
        return {**variables, "PATH": variables["PATH"].replace("$PATH", BASE_PATH)}

    @property
    def health_check(self) -> list[str]:
        """The command of the HEALTHCHECK."""
        command: list[str] = json.loads(
            self.dockerfile.last("HEALTHCHECK").value.partition("CMD ")[2]
        )
        return command

    def container(self, arguments: Sequence[str] = ()) -> Container:
        """The entry point with these arguments, or with those of CMD, as the image's user."""
        entry_point = self.dockerfile.last("ENTRYPOINT").arguments()
        user, group = map(int, self.dockerfile.last("USER").value.split(":"))
        return Container(
            self.root,
            [*entry_point, *(arguments or self.dockerfile.last("CMD").arguments())],
            environ=self.environ,
            folder=self.dockerfile.last("WORKDIR").value,
            user=user,
            group=group,
        )

    def config(self) -> dict[str, object]:
        """User, environment, command and folder, as in an archive of the image."""
        container = self.container()
        return {
            "User": f"{container.user}:{container.group}",
            "Env": [f"{name}={text}" for name, text in self.environ.items()],
            "Entrypoint": self.dockerfile.last("ENTRYPOINT").arguments(),
            "Cmd": self.dockerfile.last("CMD").arguments(),
            "WorkingDir": container.folder,
        }

    def megabytes(self, path: str = "") -> float:
        """The size of all files below a path of the image, in 10⁶ bytes."""
        files = (self.root / path).rglob("*")
        return sum(each.lstat().st_size for each in files if not each.is_dir()) / 1e6

"""A Dockerfile as instructions in stages, with what a `.dockerignore` lets through.

Enough of the two languages for the files of this project; hadolint reads the rest.
"""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction, its lines joined, and the stage that it stands in."""

    keyword: str
    value: str
    stage: str  # empty before the first FROM

    def arguments(self) -> list[str]:
        """The exec form, if it is one, else words as a shell parts them."""
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
        """Read the text; comments go, continued lines are joined."""
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
        """The instruction of this kind that counts: the last of the last stage."""
        return self.of(keyword, stage=self.instructions[-1].stage)[-1]

    def copied_from_tree(self) -> set[str]:
        """The paths of the project that get into the image."""
        copies = [each for each in self.of("COPY") if not each.value.startswith("--from")]
        return {path for each in copies for path in each.arguments()[:-1]}


@dataclass(frozen=True, slots=True)
class DockerIgnore:
    """The patterns of a `.dockerignore`; the last one that fits a path decides."""

    patterns: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> "DockerIgnore":
        """Read the text without comments and empty lines."""
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
    # A pattern that fits a folder fits all that is in it.
    translated = re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*")
    return f"{translated}(/.*)?"

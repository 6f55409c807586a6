"""Commands of k8s/README.md, run as a reader of the page runs them."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.k8s.manifests import FOLDER, ROOT

PAGE = FOLDER / "README.md"
_BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


class CommandFailed(Exception):
    """A command of the page failed; the text is the command and its output."""


def commands(section: str) -> list[str]:
    """The blocks of shell commands of a section, each as one text."""
    _, _, text = PAGE.read_text().partition(f"\n## {section}\n")
    return _BLOCK.findall(text.partition("\n## ")[0])


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader with a checkout, an environment, and own values for those of the page."""

    checkout: Path
    environ: Mapping[str, str]
    own: Mapping[str, str]  # {text of the page: the reader's}

    def follow(self, section: str, *, within_s: float = 120.0) -> str:
        """Run all commands of a section; returns their output, raises CommandFailed."""
        return "".join(self._run(each, within_s) for each in commands(section))

    def own_words(self, text: str) -> str:
        """The text with the reader's values."""
        for shown, own in self.own.items():
            text = text.replace(shown, own)
        return text

    def _run(self, command: str, within_s: float) -> str:
        done = subprocess.run(
            ["sh", "-euc", self.own_words(command)],
            cwd=self.checkout,
            env=dict(self.environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=within_s,
        )
        if done.returncode:
            raise CommandFailed(f"{command}{done.stdout[-3000:]}")
        return done.stdout


def checkout(folder: Path, base: Path) -> Path:
    """A checkout of the manifests with another base; returns its folder."""
    target = folder / "checkout"
    shutil.copytree(FOLDER, target / FOLDER.relative_to(ROOT))
    copied = target / "k8s" / "base"
    shutil.rmtree(copied)
    shutil.copytree(base, copied)
    return target

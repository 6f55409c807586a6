"""Runs the blocks of one page in their order: `python -m tests.docs.pages.run PAGE FOLDER`.

The process needs namespaces of its own for network, mounts and processes, and the rights of root.
`run_in_namespaces` starts it in them. It ends with 1 at the first block that fails, or does not
print what the page shows.
"""

import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import traceback
import uuid
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from tests.docs.pages.blocks import ROOT, Block, blocks_of
from tests.docs.pages.changelog import SETTINGS, running_changelog
from tests.docs.pages.machine import (
    environment,
    make_checkout,
    make_private,
    running_database,
    wait_until_ready,
)

SERVES = re.compile(r"(sidelook|service) serve\b")
LOOKS_UP = re.compile(r"\bcurl\b|\bsidelook (lookup|status|explain)\b")
CONFIGURATION = "sidelook.yaml"
PREPARED = ("how-to", "reference", "explanation")  # pages that begin with these three lines
PREAMBLE = """
from pyspark.sql import SparkSession, functions as F
from sidelook import Sidecar
spark = SparkSession.builder.master("local[2]").getOrCreate()
dims = Sidecar("unix:///run/sidelook/sidelook.sock")
"""
PAGE_S = 240  # longest time of a page


# `setpriv` and `--kill-child` end everything with this process, however that ends.
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
_TEMPORARY = "/tmp"  # paths of sockets are short, and PostgreSQL's user may enter it


def run_in_namespaces(page: Path) -> bool:
    """Whether all blocks of the page run, and print what the page shows."""
    with tempfile.TemporaryDirectory(prefix="sidelook-page-", dir=_TEMPORARY) as folder:
        program = (sys.executable, "-m", "tests.docs.pages.run", str(page.resolve()), folder)
        return subprocess.run([*NAMESPACES, *program], cwd=ROOT, check=False).returncode == 0


class WrongPage(Exception):
    """A block failed, or printed something else than the page shows."""


class Shell:
    """One bash for all blocks in `sh`; it ends at the first command that fails."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        """Start it in this folder."""
        self._process = subprocess.Popen(
            ["bash", "-e"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=variables,
        )
        self._block = Path(variables["HOME"]) / "block.sh"
        self._mark = uuid.uuid4().hex  # printed after each block
        # Background jobs keep the pipe open after the end of the shell.
        self._send(f"trap 'echo {self._mark} failed' EXIT")

    def run(self, text: str) -> str:
        """What the commands print to standard output; raises WrongPage if one fails."""
        self._block.write_text(text)
        self._send(f". {shlex.quote(str(self._block))} < /dev/null; set -e; echo {self._mark}")
        lines: list[str] = []
        assert self._process.stdout
        for line in self._process.stdout:
            printed, mark, end = line.partition(self._mark)  # the last line may have no end
            lines.append(printed)
            if mark and not end.strip():
                return "".join(lines)
            if mark:
                break
        msg = f"a command failed, or ended the shell; before it:\n{''.join(lines)}"
        raise WrongPage(msg)

    def _send(self, command: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()


class Page:
    """The state that the blocks of a page share."""

    def __init__(self, blocks: list[Block], folder: Path, services: ExitStack) -> None:
        """Start a shell; Python, the sidecar and Debezium start when a block needs them."""
        self._folder, self._services = make_checkout(folder), services
        os.chdir(self._folder)
        self._shell = Shell(self._folder, dict(os.environ))
        self._names: dict[str, Any] = {"__name__": "__main__"}
        parts = {part for each in blocks for part in each.place.split("/")}
        self._is_prepared = not parts & set(PREPARED)
        self._has_own_sidecar = any(SERVES.search(each.text) for each in blocks)
        self._log = folder / "sidecar.log"
        self._sidecar: subprocess.Popen[bytes] | None = None
        self._served = ""  # the configuration of the running sidecar

    def run(self, block: Block) -> str:
        """What the block prints."""
        if block.is_file:
            (path := self._folder / block.title).parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            if block.title == SETTINGS:
                changelog = running_changelog(self._log.parent, block.text, os.environ)
                self._services.enter_context(changelog)
            return ""
        if block.language == "sql":
            return self._shell.run(
                f"psql -qXv ON_ERROR_STOP=1 <<'---sql---'\n{block.text}---sql---"
            )
        if block.language == "python":
            self._serve()
            return self._run_python(block)
        if LOOKS_UP.search(block.text):
            self._serve()
        printed = self._shell.run(block.text)
        if SERVES.search(block.text):
            wait_until_ready()
        return printed

    def _run_python(self, block: Block) -> str:
        if not self._is_prepared:
            exec(PREAMBLE, self._names)  # noqa: S102 -- as the page says that readers do
            self._is_prepared = True
        code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec")
        with redirect_stdout(io.StringIO()) as printed:
            exec(code, self._names)  # noqa: S102 -- the page's own code
        return printed.getvalue()

    def _serve(self) -> None:
        """Start the sidecar of a page that only shows its configuration, or a changed one."""
        path = self._folder / CONFIGURATION
        if self._has_own_sidecar or not path.exists() or path.read_text() == self._served:
            return
        if self._sidecar is not None:
            self._sidecar.terminate()
            self._sidecar.wait()
        self._served = path.read_text()
        with self._log.open("ab") as log:
            self._sidecar = subprocess.Popen(
                ["sidelook", "serve", "--config", str(path)], stderr=log, cwd=self._folder
            )
        wait_until_ready()


def check_output(block: Block, printed: str) -> None:
    """Compare with the page: `…` in a line is any text, a line of `…` alone any lines."""
    lines = [re.escape(line.rstrip()).replace("…", ".*") for line in block.text.splitlines()]
    pattern = "".join(r"(.*\n)*" if line == ".*" else rf"{line}\n" for line in lines)
    found = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    if not re.fullmatch(pattern, found):
        msg = f"{block.place} shows:\n{block.text}\nbut the block before it printed:\n{found}"
        raise WrongPage(msg)


def run_page(path: Path, folder: Path) -> None:
    """Run all blocks of the page; raises what the first wrong one raises."""
    blocks = blocks_of(path)
    os.environ.update(environment(folder))
    with ExitStack() as stack:
        if "db.example" in path.read_text() or any(each.language == "sql" for each in blocks):
            stack.enter_context(running_database())
        page = Page(blocks, folder, stack)
        printed: str | None = None  # nothing was run, so that no output can be compared
        for block in blocks:
            print(f"{block.place} {block.language} {block.title}", file=sys.stderr, flush=True)
            if block.is_output and printed is not None:
                check_output(block, printed)
            elif not block.is_output:
                printed = page.run(block) if block.is_runnable else None


def _stop(*_: object) -> NoReturn:
    msg = f"the page takes longer than {PAGE_S} s"
    raise WrongPage(msg)


def main() -> int:
    """Run the page that the arguments name."""
    path, folder = map(Path, sys.argv[1:])
    make_private(folder)
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(PAGE_S)
    try:
        run_page(path, folder)
    except (Exception, SystemExit):  # noqa: BLE001 -- code of a page raises anything
        traceback.print_exc()
        if (log := folder / "sidecar.log").exists():
            print(log.read_text()[-5000:], file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

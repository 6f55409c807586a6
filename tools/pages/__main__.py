"""Run the blocks of pages: `python -m tools.pages docs/how-to/sql.md …`; by default of all pages.

Each page runs in namespaces of its own for network, mounts and processes, which needs the rights
of root. Prints the place of each block; the exit code is 1 if a page failed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.pages.blocks import ROOT, pages

# `setpriv` and `--kill-child` end everything with this process, however that ends.
NAMESPACES = (
    *("setpriv", "--pdeathsig", "KILL"),
    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
)
_TEMPORARY = "/tmp"  # paths of sockets are short, and PostgreSQL's user may enter it


def run_in_namespaces(page: Path) -> bool:
    """Whether all blocks of the page run, and print what the page shows."""
    with tempfile.TemporaryDirectory(prefix="sidelook-page-", dir=_TEMPORARY) as folder:
        program = (sys.executable, "-m", "tools.pages.run", str(page.resolve()), folder)
        return subprocess.run([*NAMESPACES, *program], cwd=ROOT, check=False).returncode == 0


def main() -> int:
    """Run the pages of the arguments."""
    parser = argparse.ArgumentParser(prog="python -m tools.pages", description=__doc__)
    parser.add_argument("pages", type=Path, nargs="*", metavar="PAGE")
    chosen = parser.parse_args().pages or pages()
    failed = [str(page) for page in chosen if not run_in_namespaces(page)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} pages run", *failed, sep="\nfailed: ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

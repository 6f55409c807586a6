"""A root file system to build the image on where no registry gives one: Debian with Python.

Stands for the slim Python image: the same Debian and the same Python, from the machine's own
package archive. Kept in the user's cache.
"""

import os
import subprocess
from pathlib import Path

from demo.maven_libraries import download_cache
from tests.debian_tool import ToolUnavailable, debian_tool

SUITE = "bookworm"  # what the slim image of Python 3.11 is made of, too
PACKAGES = "python3,python3-venv,ca-certificates"
LEFT_OUT = ("doc", "man", "locale", "info")
# The slim image calls its interpreter so.
NAME_OF_PYTHON = 'ln -s /usr/bin/python3 "$1/usr/local/bin/python"'
BUILD_TIMEOUT_S = 300


def debian_base() -> Path:
    """The archive with the root; raises ToolUnavailable where it cannot be made."""
    program = debian_tool("mmdebstrap", "mmdebstrap")
    with download_cache(os.environ) as cache:
        archive = cache / f"base-{SUITE}.tar"
        if not archive.exists():
            _make(archive, program)
    return archive


def _make(archive: Path, program: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    excluded = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in LEFT_OUT]
    command = [
        *("perl", str(program), "--mode=root", "--variant=minbase", "--format=tar"),
        *(f"--include={PACKAGES}", *excluded, f"--customize-hook={NAME_OF_PYTHON}"),
        *(SUITE, str(unfinished)),
    ]
    # It calls a program that lies beside it.
    environ = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    made = subprocess.run(
        command, env=environ, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S
    )
    if made.returncode:
        raise ToolUnavailable(f"mmdebstrap {SUITE}: {made.stderr}")
    unfinished.rename(archive)

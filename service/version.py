"""Identity of the program: its version, and the command that started it.

The protocol's version is in `lookup_core.protocol`.
"""

import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

# In a checkout and in the image; the wheel does not have it.
_PROJECT = Path(__file__).with_name("pyproject.toml")
COMMAND = "sidelook"


@cache
def own_version() -> str:
    """The version of the installed distribution, or in pyproject.toml where there is none."""
    if not _PROJECT.is_file():
        return metadata.version("sidelook-service")
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def program_name() -> str:
    """The command for texts; `python -m service` in a checkout, which has no `sidelook`."""
    is_installed = not _PROJECT.is_file() or Path(sys.argv[0]).name == COMMAND
    return COMMAND if is_installed else "python -m service"

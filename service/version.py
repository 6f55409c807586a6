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
    """The command for texts: as this process was started, because a checkout has no `sidelook`."""
    return COMMAND if Path(sys.argv[0]).name == COMMAND else "python -m service"

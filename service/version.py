"""Which version of the sidecar this is.

Not that of the streaming protocol, which stands in `lookup_core.protocol`.
"""

import tomllib
from functools import cache
from pathlib import Path

# Beside the package in a checkout as in the image: the service is run from nowhere else.
_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


@cache
def own_version() -> str:
    """The project's version, as its file has it."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    return str(project["version"])

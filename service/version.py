"""Version of the sidecar; the protocol's version is in `lookup_core.protocol`."""

import tomllib
from functools import cache
from pathlib import Path

# Next to the package, in a checkout and in the image: the service runs nowhere else.
_PROJECT = Path(__file__).parent.parent / "pyproject.toml"


@cache
def own_version() -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    return str(project["version"])

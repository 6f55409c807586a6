"""Which version of the sidecar this is.

Not that of the streaming protocol, which stands in `lookup_core.protocol`.
"""

from importlib.metadata import PackageNotFoundError, version

UNINSTALLED = "0+checkout"


def own_version() -> str:
    """The version that is installed; a checkout that is not has none."""
    try:
        return version("sidelook")
    except PackageNotFoundError:
        return UNINSTALLED

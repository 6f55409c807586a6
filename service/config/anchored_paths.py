"""Relative paths of the configuration start at the folder of its file.

Done before the values are checked, as the checks look at the files.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATH_KEYS = frozenset(
    {
        *("unix", "token_file", "admin_token_file", "dsn_file", "path"),
        *("password_file", "ca_file", "certificate_file"),
        *("cert_file", "key_file", "client_ca_file", "headers_file"),
    }
)


def anchored_paths(values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The same values, but with absolute paths wherever the configuration has one."""
    sections = {name: values[name] for name in ("listen", "auth", "tracing") if name in values}
    anchored = {name: _anchored(section, folder) for name, section in sections.items()}
    dimensions = values.get("dimensions")
    if isinstance(dimensions, Mapping):
        anchored["dimensions"] = {
            name: _anchored_dimension(dimension, folder) for name, dimension in dimensions.items()
        }
    return {**values, **anchored}


def _anchored_dimension(dimension: object, folder: Path) -> object:
    if not isinstance(dimension, Mapping):
        return dimension
    sections = {name: dimension[name] for name in ("source", "refresh") if name in dimension}
    return {**dimension, **{name: _anchored(each, folder) for name, each in sections.items()}}


def _anchored(section: object, folder: Path) -> object:
    if not isinstance(section, Mapping):
        return section  # refused later, with a better word than could be said here
    return {
        key: str(folder / value)
        if key in PATH_KEYS and isinstance(value, str)
        else _anchored(value, folder)
        for key, value in section.items()
    }

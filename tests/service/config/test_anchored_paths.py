"""Relative paths and the folder that they start at."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.config.loading import PATH_KEYS, anchored_paths
from service.config.settings import Settings

FOLDER = Path("/etc/sidelook")


def test_each_path_starts_at_the_folder() -> None:
    """Sockets, secrets and Parquet files are found beside the configuration."""
    values = {
        "listen": {"unix": "run/s.sock", "tls": {"cert_file": "tls.crt", "client_ca_file": "ca"}},
        "auth": {"token_file": "../token", "admin_token_file": None},
        "dimensions": {"a": {"source": {"path": "a.parquet"}}, "b": {"source": {"dsn_file": "b"}}},
    }

    assert anchored_paths(values, FOLDER) == {
        "listen": {
            "unix": "/etc/sidelook/run/s.sock",
            "tls": {"cert_file": "/etc/sidelook/tls.crt", "client_ca_file": "/etc/sidelook/ca"},
        },
        "auth": {"token_file": "/etc/sidelook/../token", "admin_token_file": None},
        "dimensions": {
            "a": {"source": {"path": "/etc/sidelook/a.parquet"}},
            "b": {"source": {"dsn_file": "/etc/sidelook/b"}},
        },
    }


def test_absolute_paths_stay() -> None:
    """An absolute path means itself."""
    values = {"listen": {"unix": "/run/s.sock"}}

    assert anchored_paths(values, FOLDER) == values


def test_other_values_stay() -> None:
    """What is no path, or no mapping, is left to the checks."""
    values = {
        "listen": 5,
        "auth": {"token_file": 5},
        "limits": {"path": "x"},
        "dimensions": {"path": {"key": ["path"], "table": "path"}, "b": None, "c": {"source": []}},
    }

    assert anchored_paths(values, FOLDER) == values
    assert anchored_paths({"dimensions": []}, FOLDER) == {"dimensions": []}


def test_every_path_of_the_schema_is_known() -> None:
    """A new key with a path cannot be forgotten here."""
    schema = Settings.model_json_schema()

    assert set(_path_keys(schema)) == PATH_KEYS


def _path_keys(schema: dict[str, Any]) -> Iterator[str]:
    for definition in schema["$defs"].values():
        for name, field in definition.get("properties", {}).items():
            if "'format': 'path'" in str(field):
                yield name

"""A sidecar as its own process with dimensions from PostgreSQL, each configured by its test.

Starts nothing itself: `SidecarProcess.running` does.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.end_to_end.sidecar_process import SERVE, SidecarProcess

CONNECTIONS = 4096  # of callers; more than any of the tests has


def postgres_sidecar(
    folder: Path, dsn: str, dimensions: Mapping[str, Mapping[str, Any]]
) -> SidecarProcess:
    """One with a dimension for each table; what is not named has the product's default."""
    configuration = {
        "limits": {"connections": CONNECTIONS},
        "dimensions": {table: _dimension(dsn, table, own) for table, own in dimensions.items()},
    }
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps(configuration))  # which is YAML, too
    return SidecarProcess(folder, (*SERVE, "--config", str(path)))


def _dimension(dsn: str, table: str, own: Mapping[str, Any]) -> dict[str, Any]:
    source = {"kind": "postgres", "dsn": dsn, "table": table}
    return {"source": source, "key": ["id"], **own}

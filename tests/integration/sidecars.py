"""Sidecar processes with dimensions from PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tools.processes.sidecar_process import SERVE, SidecarProcess

CONNECTIONS = 4096  # of callers; more than any test opens


def postgres_sidecar(
    folder: Path, dsn: str, dimensions: Mapping[str, Mapping[str, Any]], **sections: object
) -> SidecarProcess:
    """A sidecar that is not started; a dimension reads the table of its name by the key `id`.

    `table` and `key` of a dimension, and sections of the configuration, may be given.
    """
    configuration = {
        "limits": {"connections": CONNECTIONS},
        "dimensions": {name: _dimension(dsn, name, own) for name, own in dimensions.items()},
        **sections,
    }
    path = folder / "sidelook.yaml"
    path.write_text(json.dumps(configuration))  # JSON is YAML
    return SidecarProcess(folder, (*SERVE, "--config", str(path)))


@asynccontextmanager
async def started(sidecar: SidecarProcess, *, until: str = "/readyz") -> AsyncIterator[None]:
    """Run the sidecar; the event loop of the test continues during start and stop."""
    process = sidecar.running(until=until)
    await asyncio.to_thread(process.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)


def _dimension(dsn: str, name: str, own: Mapping[str, Any]) -> dict[str, Any]:
    rest = dict(own)
    source = {"kind": "postgres", "dsn": dsn, "table": rest.pop("table", name)}
    return {"source": source, "key": ["id"], **rest}

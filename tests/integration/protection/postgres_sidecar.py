"""A sidecar as its own process with dimensions from PostgreSQL, each configured by its test.

Knows nothing of the tables; the key is always `id`.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.grace import GRACE_S
from tools.processes.sidecar_process import SERVE, SidecarProcess

CONNECTIONS = 4096  # of callers; more than any of the tests has
BACK_WITHIN_S = 1.0 + GRACE_S  # a store that lets sessions in again is found within a second


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


@asynccontextmanager
async def started(sidecar: SidecarProcess, *, until: str = "/readyz") -> AsyncIterator[None]:
    """The same as `running`, in threads: the test's loop has a network to play meanwhile."""
    process = sidecar.running(until=until)
    await asyncio.to_thread(process.__enter__)
    try:
        yield
    finally:
        await asyncio.to_thread(process.__exit__, None, None, None)


def _dimension(dsn: str, table: str, own: Mapping[str, Any]) -> dict[str, Any]:
    source = {"kind": "postgres", "dsn": dsn, "table": table}
    return {"source": source, "key": ["id"], **own}

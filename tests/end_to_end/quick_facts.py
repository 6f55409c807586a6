"""A database that is slower than the facts about it, and a sidecar that waits for its changes.

The triggers are those that `gen-triggers` prints. When rows are inserted is the tests' business.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.processes.postgres_server import Database
from tools.processes.sidecar_process import SERVE, SidecarFigures, SidecarProcess, clean_environ
from tools.processes.until import until

WAIT_S = 40.0  # at most, for the dimensions' changes
TIMEOUT_S = 60.0
FOLLOWED = ("customers", "tariffs")
_TABLES = (
    "CREATE TABLE customers (id int PRIMARY KEY, name text)",
    "CREATE TABLE tariffs (id int, since timestamptz, tariff text, PRIMARY KEY (id, since))",
)


@dataclass(frozen=True, slots=True)
class QuickFacts:
    """Both together; a dimension `hasty` is `customers` without a wait."""

    database: Database
    sidecar: SidecarProcess

    def insert_once_asked(self, statement: str, *, records: int) -> float:
        """Run it when so many records wait in the sidecar; when that was, monotonic seconds."""
        figures = SidecarFigures(self.sidecar)
        until(lambda: figures.levels()["sidelook_in_flight_records"] == records)
        self.database.execute(statement)
        return time.monotonic()

    def wait_until_followed(self) -> None:
        """Until the feeds have told the time: what is inserted from now on is heard."""
        until(lambda: all(self._watermark_ms(name) for name in FOLLOWED))

    def _watermark_ms(self, dimension: str) -> int | None:
        told = self.sidecar.get(f"/v1/dimensions/{dimension}").json()
        watermark_ms: int | None = told["freshness"]["feed"]["watermark_ms"]
        return watermark_ms


@contextmanager
def quick_facts(database: Database, folder: Path) -> Iterator[QuickFacts]:
    """The sidecar, while it runs and follows both tables, which are empty."""
    database.execute(*_TABLES)
    config = folder / "sidelook.yaml"
    config.write_text(json.dumps({"dimensions": _dimensions(database)}))  # which is YAML, too
    for dimension in FOLLOWED:
        database.execute(_triggers(dimension, config))
    facts = QuickFacts(database, SidecarProcess(folder, (*SERVE, "--config", str(config))))
    with facts.sidecar.running():
        facts.wait_until_followed()
        yield facts


def _dimensions(database: Database) -> dict[str, object]:
    def source(table: str) -> dict[str, object]:
        return {
            "source": {"kind": "postgres", "table": f"public.{table}", "dsn": database.dsn()},
            "key": ["id"],
            "timeout": f"{TIMEOUT_S:g}s",
        }

    waiting = {"refresh": {"listen": {}}, "wait_for_dimension": f"{WAIT_S:g}s"}
    return {
        "customers": {**source("customers"), **waiting},
        "hasty": source("customers"),
        "tariffs": {**source("tariffs"), **waiting, "versions": {"valid_from": "since"}},
    }


def _triggers(dimension: str, config: Path) -> str:
    command = (sys.executable, "-m", "service", "gen-triggers", dimension, "--config", str(config))
    script = subprocess.run(command, env=clean_environ(), check=True, capture_output=True)
    return script.stdout.decode()

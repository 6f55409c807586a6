"""A run of the checks: a sidecar of the checkout, and one program in each environment."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.compat import checks
from tests.compat.environments import Environment
from tests.compat.pairs import Pair
from tools.processes.sidecar_process import SERVE, SidecarProcess, clean_environ

PROGRAM_TIMEOUT_S = 600.0
_FIELDS = [(column.name, column.arrow) for column in checks.TYPED_COLUMNS]
_THINGS = pa.Table.from_pylist(
    [
        {"id": 1, "pair": 7, **{column.name: column.value for column in checks.TYPED_COLUMNS}},
        {"id": 2, "pair": 7},
    ],
    pa.schema([("id", pa.int64()), ("pair", pa.int64()), *_FIELDS]),
)
_GAPS = pa.Table.from_pylist(
    [{"id": key, "double": value} for key, values in checks.GAPS.items() for value in values],
    pa.schema([("id", pa.int64()), ("double", pa.float64())]),
)
_TABLES = {
    "customers": pa.Table.from_pylist(checks.CUSTOMERS),
    "things": _THINGS,
    "pairs": _THINGS,
    # A file takes no NULL in a key.
    "typed": _THINGS.slice(0, 1),
    "planes": pa.Table.from_pylist(checks.VERSIONS),
    "gaps": _GAPS,
    "first_gaps": _GAPS,
}
_KEYS: dict[str, dict[str, Any]] = {
    "customers": {"key": ["id"]},
    "things": {"key": ["id"]},
    "pairs": {"key": ["pair"], "match": "all"},
    "typed": {"key": checks.TYPED_KEY, "columns": ["id"]},
    "gaps": {"key": ["id"], "match": "all"},
    "first_gaps": {"key": ["id"], "match": "first"},
    "planes": {"key": ["tailnum"], "versions": {"valid_from": "since", "valid_to": "until"}},
}


@dataclass(frozen=True, slots=True)
class PairResult:
    """What the program of a pair printed; `failures` is {check: error}."""

    versions: Mapping[str, str]
    outcomes: Mapping[str, str | None]

    @property
    def failures(self) -> dict[str, str]:
        """{check: error} of the checks that failed."""
        return {name: error for name, error in self.outcomes.items() if error is not None}


@contextmanager
def compat_sidecar() -> Iterator[SidecarProcess]:
    """A running sidecar with the dimensions of the checks, from Parquet files."""
    with tempfile.TemporaryDirectory(prefix="sidelook-compat-") as name:
        folder = Path(name)
        for dimension, rows in _TABLES.items():
            pq.write_table(rows, folder / f"{dimension}.parquet")
        dimensions = {
            name: {"source": {"kind": "parquet", "path": f"{name}.parquet"}, **settings}
            for name, settings in _KEYS.items()
        }
        config = folder / "config.yaml"
        config.write_text(json.dumps({"dimensions": dimensions}))  # JSON is YAML
        sidecar = SidecarProcess(folder, (*SERVE, "--config", str(config)))
        with sidecar.running():
            yield sidecar


def names_for(pair: Pair) -> list[str]:
    """The checks that a pair has to pass."""
    return [name for name in checks.CHECKS if name != "connect" or pair.has_connect]


def run_checks(environment: Environment, sidecar: SidecarProcess) -> PairResult:
    """Run all checks in a made environment; its standard error goes to that of this process.

    Raises CalledProcessError or TimeoutExpired if the program does not end by itself.
    """
    with tempfile.TemporaryDirectory(prefix="sidelook-compat-") as folder:
        arguments = [f"unix://{sidecar.socket}", str(sidecar.folder), folder]
        done = subprocess.run(
            # Isolated: neither the working directory nor PYTHONPATH brings the checkout.
            [environment.python, "-I", checks.__file__, *arguments, *names_for(environment.pair)],
            cwd=folder,
            env=_environ(environment),
            stdout=subprocess.PIPE,
            timeout=PROGRAM_TIMEOUT_S,
            check=True,
        )
    return PairResult(**json.loads(done.stdout.splitlines()[-1]))


def _environ(environment: Environment) -> dict[str, str]:
    inherited = {
        name: text for name, text in clean_environ().items() if not name.startswith("PYTHON")
    }
    ours = {"PYSPARK_PYTHON": os.fspath(environment.python), "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**inherited, **ours}

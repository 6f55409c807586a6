"""Schemathesis over the whole OpenAPI document of a sidecar that runs.

Only runs it and reads its report; how much of it a run of the tests can take is their business.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.end_to_end.parquet_sidecar import stopped_parquet_sidecar
from tools.processes.sidecar_process import REQUEST_TIMEOUT_S, SidecarProcess, free_port

ADMIN_TOKEN = "an-admins-token"  # made up
# Which keys and columns there are depends on the dimension, so that no document can tell of all
# that fits it that it is valid. 503 and 504 are answers that it names; what it does not name, such
# as 500, is a fault by `status_code_conformance`.
LEFT_OUT = ("positive_data_acceptance", "not_a_server_error")


@dataclass(frozen=True, slots=True)
class FuzzedSidecar:
    """A sidecar at a TCP port, with tokens for readers and admins."""

    process: SidecarProcess
    port: int

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def fuzzed_sidecar(folder: Path) -> Iterator[FuzzedSidecar]:
    """The sidecar as its own process, while it runs."""
    process, port = stopped_parquet_sidecar(folder), free_port()
    environ = {**process.environ, "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{port}"}
    for name, token in (("TOKEN", "a-readers-token"), ("ADMIN_TOKEN", ADMIN_TOKEN)):
        file = folder / name
        file.touch(0o600)
        file.write_text(token)
        environ[f"SIDELOOK_AUTH__{name}_FILE"] = str(file)
    process = replace(process, environ=environ)
    with process.running():
        yield FuzzedSidecar(process, port)


@dataclass(frozen=True, slots=True)
class Fuzzing:
    """How it ended."""

    code: int
    examples: int
    text: str


def fuzz(sidecar: FuzzedSidecar, document: dict[str, Any], *, examples: int, seed: int) -> Fuzzing:
    """All phases, with so many examples for each operation at most, and the same ones per seed."""
    folder = sidecar.process.folder
    schema, report = folder / "openapi.json", folder / "report.json"
    schema.write_text(json.dumps(exact(document)))
    command = (
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(schema)),
        *("--url", sidecar.url, "--header", f"Authorization: Bearer {ADMIN_TOKEN}"),
        *("--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure"),
        *("--exclude-checks", ",".join(LEFT_OUT), "--generation-database", "none"),
        # A busy machine is no finding: what is made and answered slowly is fine.
        *("--suppress-health-check", "too_slow", "--request-timeout", str(REQUEST_TIMEOUT_S)),
        *("--report", "json", "--report-json-path", str(report), "--no-color"),
    )
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    text = f"seed {seed}\n{ended.stdout}{ended.stderr}"
    return Fuzzing(ended.returncode, _examples(report), text)


def exact(document: dict[str, Any]) -> dict[str, Any]:
    """The document without the answers that stand for all others: each status has to be named."""
    paths = {
        path: {name: _exact_operation(each) for name, each in item.items()}
        for path, item in document["paths"].items()
    }
    return {**document, "paths": paths}


def _exact_operation(operation: Any) -> Any:  # noqa: ANN401  # JSON: an operation, or parameters
    if not isinstance(operation, dict):
        return operation
    responses = operation["responses"]
    named = {status: each for status, each in responses.items() if status != "default"}
    return {**operation, "responses": named}


def _examples(report: Path) -> int:
    return int(json.loads(report.read_text())["test_cases"]["generated"]) if report.exists() else 0

"""Requests that schemathesis makes from the OpenAPI document have documented responses only."""

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.sidecars import customers_sidecar
from tools.processes.sidecar_process import REQUEST_TIMEOUT_S, SidecarProcess, free_port

ADMIN_TOKEN = "an-admins-token"  # made up
# Valid keys and columns depend on the dimension, so the document accepts more than the service.
# 503 and 504 are documented; `status_code_conformance` finds all others, such as 500.
EXCLUDED = ("positive_data_acceptance", "not_a_server_error")
# Examples of each operation at most; stateful runs add some.
FEW, MANY = 20, 30
ROUNDS, MANY_EXAMPLES = 10, 500  # 5,000 in all rounds


@pytest.fixture(scope="module")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SidecarProcess]:
    """A sidecar at a TCP port, with tokens for readers and admins."""
    folder = tmp_path_factory.mktemp("fuzzed")
    auth = {}
    for name, token in (("token_file", "a-readers-token"), ("admin_token_file", ADMIN_TOKEN)):
        (folder / name).touch(0o600)
        (folder / name).write_text(token)
        auth[name] = name
    process = customers_sidecar(folder, auth=auth)
    process = SidecarProcess(
        *(folder, process.command),
        {**process.environ, "SIDELOOK_LISTEN__HTTP": f"127.0.0.1:{free_port()}"},
    )
    with process.running():
        yield process


def without_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """The document without `default` responses: each status has to be named."""
    for item in document["paths"].values():
        for operation in item.values():
            if isinstance(operation, dict):
                operation["responses"].pop("default", None)
    return document


@pytest.mark.parametrize(
    ("examples", "at_least"),
    [
        (FEW, 300),
        *[pytest.param(MANY, MANY_EXAMPLES, marks=pytest.mark.full) for _ in range(ROUNDS)],
    ],
)
def test_answers_are_documented(sidecar: SidecarProcess, examples: int, at_least: int) -> None:
    """Each response has a status and a body of the document, and invalid requests are refused.

    A failure prints the seed.
    """
    folder, seed = sidecar.folder, secrets.randbelow(2**31)
    schema, report = folder / "openapi.json", folder / "report.json"
    document = json.loads(sidecar.get("/openapi.json").text)
    schema.write_text(json.dumps(without_defaults(document)))
    command = (
        *(str(Path(sys.executable).with_name("schemathesis")), "run", str(schema)),
        *("--url", f"http://{sidecar.environ['SIDELOOK_LISTEN__HTTP']}"),
        *("--header", f"Authorization: Bearer {ADMIN_TOKEN}"),
        *("--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure"),
        *("--exclude-checks", ",".join(EXCLUDED), "--generation-database", "none"),
        # Slow responses of a busy machine are no finding.
        *("--suppress-health-check", "too_slow", "--request-timeout", str(REQUEST_TIMEOUT_S)),
        *("--report", "json", "--report-json-path", str(report), "--no-color"),
    )

    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)

    assert ended.returncode == 0, f"seed {seed}\n{ended.stdout}{ended.stderr}"
    assert int(json.loads(report.read_text())["test_cases"]["generated"]) >= at_least
    assert sidecar.health("/livez").status == 200

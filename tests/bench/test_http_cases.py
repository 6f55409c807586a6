"""What is asked over HTTP, and whether the answer is right."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bench.http_cases import HttpCase, bare_handler, http_cases

CUSTOMERS = pa.table({"id": range(10_000), "name": [f"customer {n}" for n in range(10_000)]})


@pytest.mark.parametrize("case", http_cases(CUSTOMERS), ids=lambda case: case.name)
def test_only_right_rows_are_no_fault(case: HttpCase, tmp_path: Path) -> None:
    """The rows of the asked keys are right, in a list or alone; one that differs is not."""
    right, wrong = {"rows": case.rows}, {"rows": [*case.rows[1:], {"name": "nobody"}]}
    method = case.request.method
    answers: dict[str, dict[str, Any]] = {
        f"{method} /a{case.route}": right,
        f"{method} /b{case.route}": wrong,
    }
    if len(case.rows) == 1:
        answers[f"{method} /c{case.route}"] = dict(case.rows[0])
    with bare_handler(answers, tmp_path) as url:
        faults = {name: case.fault(f"{url}/{name}") for name in "abc"[: len(answers)]}

    assert faults.pop("b") == f"{case.name}: {url}/b gives other rows"
    assert set(faults.values()) == {None}


def test_hundred_keys_are_asked_at_once() -> None:
    """There is a case for one key in its path, one for one key, and one for a hundred."""
    assert [len(case.rows) for case in http_cases(CUSTOMERS)] == [1, 1, 100]

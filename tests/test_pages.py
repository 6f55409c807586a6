"""Pages of the documentation: options of the client, and tests of promises and threats."""

import ast
import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_client import Sidecar
from tests.test_layers import ROOT

CLIENT = (ROOT / "docs" / "client.md").read_text()
PROMISES = [
    line
    for line in (ROOT / "docs" / "consistency.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("| ---", "| Mode", "| What"))
]
_, _, THREATS = (ROOT / "SECURITY.md").read_text().partition("\n## Threats")


@pytest.mark.parametrize(
    "method",
    [
        Sidecar,
        Sidecar.lookup_join,
        Sidecar.lookup_udf,
        Sidecar.register,
        Sidecar.repartition_for,
    ],
)
def test_page_lists_options_with_defaults(method: Callable[..., Any]) -> None:
    """The options have the order and the defaults of the signature."""
    _, _, section = CLIENT.partition(f"\n## `{method.__name__}`\n")
    table = re.split(r"\n## |\n### Examples\n", section)[0]
    rows = re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE)

    listed = [(name, _default(text)) for name, text in rows]

    options = inspect.signature(method).parameters.values()
    assert listed == [(each.name, each.default) for each in options if each.name != "self"]


def _default(text: str) -> object:
    return inspect.Parameter.empty if text == "required" else ast.literal_eval(text.strip("`"))


@pytest.mark.parametrize("line", PROMISES)
def test_each_promise_has_its_test(line: str) -> None:
    """Each line of a table of docs/consistency.md ends with a test that exists."""
    named = re.search(r"`([\w/]+\.py)::(\w+)` \|$", line)

    assert named, "no test at the end of the line"
    assert exists(f"tests/{named[1]}", named[2])


def test_each_threat_has_its_tests() -> None:
    """Each line of the table of threats in SECURITY.md ends with tests that exist."""
    lines = [line for line in THREATS.splitlines() if line.startswith("| ")][2:]
    ends = [line.strip("| ").split(" | ")[-1] for line in lines]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", end) for end in ends]

    assert len(named) >= 20
    assert all(named)
    assert [test for tests in named for test in tests if not exists(*test)] == []


def exists(file: str, test: str) -> bool:
    """Whether the file has a test of this name."""
    return (ROOT / file).exists() and f"def {test}(" in (ROOT / file).read_text()

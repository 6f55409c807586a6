"""SECURITY.md names tests for each threat, and they are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "SECURITY.md"
_NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def threats(text: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Each line of the table: the threat, and the file and name of each of its tests."""
    _, _, section = text.partition("\n## Threats")
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    cells = [line.strip("| ").split(" | ") for line in lines]
    return [(each[0], _NAMED.findall(each[-1])) for each in cells]


def untested(text: str) -> list[str]:
    """The threats without a test, or with one that is not there."""
    return [
        threat
        for threat, tests in threats(text)
        if not tests or not all(name in _tests(file) for file, name in tests)
    ]


def _tests(file: str) -> set[str]:
    path = ROOT / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in nodes if isinstance(node, kinds)}


def test_each_threat_has_its_tests() -> None:
    """No line of the table is a mere promise."""
    text = PAGE.read_text()

    assert len(threats(text)) >= 20
    assert untested(text) == []


@pytest.mark.parametrize(
    "line",
    [
        "| a threat | a defence | |",
        "| a threat | a defence | `tests/none.py::test_a` |",
        "| a threat | a defence | `tests/test_security_page.py::test_none` |",
    ],
)
def test_missing_tests_are_noticed(line: str) -> None:
    """A line without tests, with another file's or with none that exists is told."""
    text = f"\n## Threats\n\n| threat | against it | tests |\n| --- | --- | --- |\n{line}\n"

    assert untested(text) == ["a threat"]

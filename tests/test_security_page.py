"""SECURITY.md names tests for each threat, and they exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def names_in(file: str) -> set[str]:
    """The names of the tests in a file, none if it does not exist."""
    path = ROOT / file
    nodes = ast.walk(ast.parse(path.read_text())) if path.exists() else ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in nodes if isinstance(node, kinds)}


def test_each_threat_has_its_tests() -> None:
    """Each line of the table of threats ends with tests that exist."""
    _, _, section = (ROOT / "SECURITY.md").read_text().partition("\n## Threats")
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    named = {line: NAMED.findall(line.strip("| ").split(" | ")[-1]) for line in lines}

    assert len(named) >= 20
    assert [line for line, tests in named.items() if not tests] == []
    listed = [each for tests in named.values() for each in tests]
    assert [(file, name) for file, name in listed if name not in names_in(file)] == []

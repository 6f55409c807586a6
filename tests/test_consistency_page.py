"""docs/consistency.md names a test for each promise."""

import re

import pytest

from tests.test_layers import ROOT

LINES = [
    line
    for line in (ROOT / "docs" / "consistency.md").read_text().splitlines()
    if line.startswith("|") and not line.startswith(("| ---", "| Mode", "| What"))
]


@pytest.mark.parametrize("line", LINES)
def test_each_line_names_its_test(line: str) -> None:
    """Each line of a table ends with a test that exists."""
    named = re.search(r"`([\w/]+\.py)::(\w+)` \|$", line)

    assert named, "no test at the end of the line"
    module, test = named.groups()
    assert f"def {test}(" in (ROOT / "tests" / module).read_text()

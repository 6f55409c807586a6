"""Pages of the documentation: tests of promises and threats."""

import re

import pytest

from tests.test_layers import ROOT

CONSISTENCY = (ROOT / "docs" / "explanation" / "consistency.md").read_text()
PROMISES = re.findall(r"^\* .+(?:\n .+)*", CONSISTENCY, re.MULTILINE)
NAMED = r"`([\w/]+\.py)::(test_\w+)`"
_SECURITY = (ROOT / "SECURITY.md").read_text()
THREATS = _SECURITY.partition("\n## Threats\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_its_tests(promise: str) -> None:
    """Each list item of docs/explanation/consistency.md ends with tests that exist."""
    text, _, tests = promise.partition("\n  Test")
    named = re.findall(NAMED, tests)

    assert "::" not in text
    assert re.fullmatch(rf"s?:\s+{NAMED}(,\s+{NAMED})*", tests), "no tests at the end of the item"
    assert [test for test in named if not exists(f"tests/{test[0]}", test[1])] == []


def test_promises_name_many_tests() -> None:
    """No promise was lost with the form of the page: a pattern that finds none would pass."""
    assert len({*re.findall(NAMED, CONSISTENCY)}) >= 85
    assert len(re.findall(NAMED, CONSISTENCY)) == len(re.findall(NAMED, "\n".join(PROMISES)))


def test_each_threat_has_its_tests() -> None:
    """Each threat in SECURITY.md has a defence, and a list of tests that exist."""
    threats = re.split(r"^\* ", THREATS, flags=re.MULTILINE)[1:]
    ends = [re.findall(r"^  \* (.*)$", threat, re.MULTILINE) for threat in threats]
    named = [re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", "\n".join(end)) for end in ends]

    assert len(named) >= 20
    assert all(re.match(r"\*\*.+\.\*\* \S", threat) for threat in threats)
    assert [len(tests) for tests in named] == [len(end) for end in ends]
    assert all(named)
    assert [test for tests in named for test in tests if not exists(*test)] == []


def exists(file: str, test: str) -> bool:
    """Whether the file has a test of this name."""
    return (ROOT / file).exists() and f"def {test}(" in (ROOT / file).read_text()

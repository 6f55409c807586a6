"""Pages of the documentation: options of the client, and tests of promises and threats."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from spark_client import Sidecar
from tests.test_layers import ROOT

CONSISTENCY = (ROOT / "docs" / "explanation" / "consistency.md").read_text()
PROMISES = re.findall(r"^\* .+(?:\n .+)*", CONSISTENCY, re.MULTILINE)
NAMED = r"`([\w/]+\.py)::(test_\w+)`"
_SECURITY = (ROOT / "SECURITY.md").read_text()
THREATS = _SECURITY.partition("\n## Threats\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize(
    "method",
    [
        Sidecar,
        Sidecar.local,
        Sidecar.lookup_join,
        Sidecar.lookup_joins,
        Sidecar.lookup_udf,
        Sidecar.register,
        Sidecar.repartition_for,
    ],
)
def test_docstring_describes_options(method: Callable[..., Any]) -> None:
    """The section `Args`, which is the reference of the options, has those of the signature."""
    _, _, arguments = (inspect.getdoc(method) or "").partition("\nArgs:\n")
    described = re.findall(r"^    (\w+): \S", arguments.partition("\n\n")[0], re.MULTILINE)

    options = inspect.signature(method).parameters
    assert described == [name for name in options if name != "self"]


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

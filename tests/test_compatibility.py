"""Claims about versions: docs/reference/compatibility.md, README.md and the metadata."""

import re
import tomllib

from tests.compat.page import NOT_RUN, PAGE, MatrixRow, page_text
from tests.compat.pairs import PAIRS, Pair, minor
from tests.compat.run import PairResult, names_for
from tests.test_layers import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NOT_RUN_PAIRS = [
    pair
    for pair in PAIRS
    if f"| {' | '.join(pair.versions.values())} | {NOT_RUN} |" in PAGE.read_text()
]
TESTED = [pair for pair in PAIRS if pair not in NOT_RUN_PAIRS]


def passed(pair: Pair) -> PairResult:
    """A result without failures."""
    return PairResult(pair.versions, dict.fromkeys(names_for(pair)))


def extremes(library: str) -> list[str]:
    """The oldest and the newest minor version in the tested pairs."""
    found = [minor(pair.versions[library]) for pair in TESTED]
    return [f"{first}.{second}" for first, second in (min(found), max(found))]


def test_page_shows_all_pairs_passed() -> None:
    """The page is that of a run in which each pair passed, or was not run for want of a Python."""
    rows = [MatrixRow(pair, passed(pair) if pair in TESTED else None) for pair in PAIRS]

    assert PAGE.read_text() == page_text(rows)


def test_readme_claims_tested_versions() -> None:
    """README.md names the oldest and the newest Python and PySpark of the tested pairs."""
    text = " ".join((ROOT / "README.md").read_text().split())

    claims = re.search(r"Client: Python (\S+) to (\S+) and PySpark (\S+) to (\S+), in", text)

    assert claims is not None
    assert list(claims.groups()) == extremes("python") + extremes("pyspark")


def test_metadata_requires_oldest_tested_versions() -> None:
    """The lower bounds of the wheel, and its classifiers, are those of the tested pairs."""
    listed = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["spark"]]
    bounds = dict(text.split(">=") for text in [*listed, f"python{PROJECT['requires-python']}"])
    classifier = "Programming Language :: Python :: 3."
    pythons = [text for text in PROJECT["classifiers"] if text.startswith(classifier)]

    for library in ("python", "pyspark", "pyarrow", "numpy", "pandas"):
        oldest, _ = extremes(library)
        assert minor(f"{bounds[library]}.0") == minor(oldest), library
    minors = sorted({minor(pair.python) for pair in TESTED})
    assert pythons == [f"{classifier}{second}" for _, second in minors]

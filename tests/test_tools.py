"""The audit of locked dependencies for advisories."""

import json
import sys
from datetime import date
from pathlib import Path

import pytest

from tools.dependency_audit import IGNORED, LOCK_FILES, LOUD, audit, ignored_advisories, report

SAFE = {"name": "safe", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "not found on the index"}


@pytest.mark.parametrize(
    ("dependencies", "code", "lines"),
    [
        ([SAFE, WEAK], 1, ["lock.txt: weak 1.0: PYSEC-1; fixed in 1.1"]),
        ([SAFE, SAFE], 0, ["lock.txt: 2 dependencies without an advisory"]),
        ([UNKNOWN], 0, [LOUD, "lock.txt: NOT AUDITED: not found on the index", LOUD]),
        (None, 0, [LOUD, "lock.txt: NOT AUDITED: cannot resolve the host", LOUD]),
    ],
    ids=["advisory", "none", "unknown package", "no network"],
)
def test_advisory_fails_the_audit(
    dependencies: list[object] | None, code: int, lines: list[str], tmp_path: Path
) -> None:
    """A locked version with an advisory is an error; an index without an answer is reported."""
    answer = "" if dependencies is None else json.dumps({"dependencies": dependencies})
    program = tmp_path / "pip_audit.py"
    program.write_text(f"import sys\nprint({answer!r})\nsys.exit('cannot resolve the host')\n")

    audited = audit(Path("lock.txt"), ignored=(), program=(sys.executable, str(program)))

    assert report([audited]) == (code, lines)


def test_ignored_advisory_counts_again_later(tmp_path: Path) -> None:
    """An exception needs a reason and ends with its day; the shipped list has none."""
    file = tmp_path / "ignored.toml"
    file.write_text('[[ignored]]\nid = "PYSEC-1"\nreason = "not called"\nuntil = 2027-01-31\n')

    ignored = [ignored_advisories(file, date(2027, month, 1)) for month in (1, 2)]

    assert ignored == [["PYSEC-1"], []]
    assert ignored_advisories(IGNORED, date(2026, 1, 1)) == []
    assert all(each.exists() for each in LOCK_FILES)
    file.write_text('[[ignored]]\nid = "PYSEC-1"\nreason = ""\nuntil = 2027-01-31\n')
    with pytest.raises(ValueError, match="needs id, reason and until"):
        ignored_advisories(file, date(2027, 1, 1))

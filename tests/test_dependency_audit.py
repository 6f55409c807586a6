"""What the answers about dependencies mean, with a program in pip-audit's place that says them."""

import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from tests.dependency_audit import (
    IGNORED,
    LOCK_FILES,
    LOUD,
    Audit,
    audit,
    ignored_advisories,
    report,
)

LOCK = Path("lock.txt")
SAFE = {"name": "safe", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
SKIPPED = {"name": "unknown", "skip_reason": "not found on the index"}


def saying(folder: Path, text: str, *, code: int = 0) -> Sequence[str]:
    """A program that writes what it was given to a file, and says this."""
    program = folder / "program.py"
    program.write_text(
        "import pathlib, sys\n"
        f"pathlib.Path({str(folder / 'given')!r}).write_text(' '.join(sys.argv[1:]))\n"
        f"print({text!r})\n"
        "print('cannot resolve the host', file=sys.stderr)\n"
        f"sys.exit({code})\n"
    )
    return (sys.executable, str(program))


def answer(*dependencies: object) -> str:
    """What pip-audit prints about these."""
    return json.dumps({"dependencies": dependencies, "fixes": []})


def test_finding_fails(tmp_path: Path) -> None:
    """A version with an advisory is named, with the one that has none."""
    program = saying(tmp_path, answer(SAFE, WEAK), code=1)

    code, lines = report([audit(LOCK, ignored=(), program=program)])

    assert (code, lines) == (1, ["lock.txt: weak 1.0: PYSEC-1; mended in 1.1"])


def test_no_finding_passes(tmp_path: Path) -> None:
    """Where every version was asked for, that is told."""
    program = saying(tmp_path, answer(SAFE, SAFE))

    code, lines = report([audit(LOCK, ignored=(), program=program)])

    assert (code, lines) == (0, ["lock.txt: 2 dependencies without an advisory"])


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("", "cannot resolve the host"),
        (answer(SKIPPED, SKIPPED), "not found on the index"),
        (answer(), "it names no dependency"),
        ("[]", "cannot resolve the host"),
    ],
)
def test_silence_is_told_loudly(tmp_path: Path, said: str, reason: str) -> None:
    """An index that cannot be asked, or that knows nothing, is not taken for a good answer."""
    program = saying(tmp_path, said, code=1)

    code, lines = report([audit(LOCK, ignored=(), program=program)])

    assert (code, lines) == (0, [LOUD, f"lock.txt: NOT AUDITED: {reason}", LOUD])


def test_missing_program_is_told(tmp_path: Path) -> None:
    """So is pip-audit itself, where it is not installed."""
    found = audit(LOCK, ignored=(), program=(str(tmp_path / "none"),))

    assert found.fault.startswith("FileNotFoundError: ")


def test_part_that_is_unknown_is_told(tmp_path: Path) -> None:
    """Those that nobody could be asked about are named, and a finding counts all the same."""
    program = saying(tmp_path, answer(WEAK, SKIPPED), code=1)

    code, lines = report([audit(LOCK, ignored=(), program=program)])

    assert (code, lines[2]) == (1, "lock.txt: not audited: unknown")


def test_hashes_are_demanded(tmp_path: Path) -> None:
    """What is audited is what is locked; known advisories are left out by name."""
    audit(LOCK, ignored=["PYSEC-2"], program=saying(tmp_path, answer(SAFE)))

    given = (tmp_path / "given").read_text()
    assert given.startswith("--requirement lock.txt --require-hashes --disable-pip ")
    assert given.endswith("--ignore-vuln PYSEC-2")


def test_ignored_advisories_count_again_later(tmp_path: Path) -> None:
    """Each is left out until its day, and not for ever."""
    file = tmp_path / "ignored.toml"
    file.write_text('[[ignored]]\nid = "PYSEC-1"\nreason = "not called"\nuntil = 2027-01-31\n')

    assert ignored_advisories(file, date(2027, 1, 31)) == ["PYSEC-1"]
    assert ignored_advisories(file, date(2027, 2, 1)) == []


def test_ignored_advisories_have_reasons(tmp_path: Path) -> None:
    """Nobody leaves one out without saying why."""
    file = tmp_path / "ignored.toml"
    file.write_text('[[ignored]]\nid = "PYSEC-1"\nreason = ""\nuntil = 2027-01-31\n')

    with pytest.raises(ValueError, match="each advisory needs an id, a reason, and a day"):
        ignored_advisories(file, date(2027, 1, 1))


def test_shipped_files_are_there() -> None:
    """The list of what is left out is readable, and so are both lock files."""
    assert ignored_advisories(IGNORED, date(2026, 1, 1)) == []
    assert [each.exists() for each in LOCK_FILES] == [True, True]
    assert Audit(LOCK).findings == ()

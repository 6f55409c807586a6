"""Smoke tests of the tools that download: Debian programs and the dependency audit."""

import json
import platform
import sys
from datetime import date
from pathlib import Path

import pytest

from tools.debian import debian_tool
from tools.dependency_audit import IGNORED, LOCK_FILES, LOUD, audit, ignored_advisories, report

# Stand-ins for the programs of Debian: a package is a file, and unpacking it creates one program.
PROGRAMS = {
    "apt-get": """echo "$1" >> "$LOG"
case "$1" in
  indextargets) echo "Packages $CODENAME main http://mirror/debian/" ;;
  update) : > "$LISTS" ;;
  download) test -e "$LISTS" || exit 100; : > "$2_1.0_all.deb" ;;
esac
""",
    "dpkg": '/bin/mkdir -p "$3/usr/sbin"; : > "$3/usr/sbin/promtool"\n',
}
SAFE = {"name": "safe", "version": "1.0", "vulns": []}
WEAK = {"name": "weak", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}]}
UNKNOWN = {"name": "unknown", "skip_reason": "not found on the index"}


@pytest.mark.parametrize(
    ("suite", "folder", "commands"),
    [
        (None, "prometheus", ["download", "update", "download"]),
        ("trixie", "prometheus-trixie", ["indextargets", "download", "update", "download"]),
    ],
)
def test_package_is_unpacked_into_the_cache(
    suite: str | None, folder: str, commands: list[str], tmp_path: Path
) -> None:
    """A missing program is downloaded once, with a new package list if there is none."""
    paths = {"XDG_CACHE_HOME": "", "PATH": "bin", "LOG": "log", "LISTS": "lists"}
    environ = {name: str(tmp_path / path) for name, path in paths.items()}
    environ["CODENAME"] = platform.freedesktop_os_release()["VERSION_CODENAME"]
    (tmp_path / "bin").mkdir()
    for name, text in PROGRAMS.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}")
        (tmp_path / "bin" / name).chmod(0o755)

    tools = [debian_tool("prometheus", "promtool", suite=suite, environ=environ) for _ in range(2)]

    unpacked = tmp_path / "sidelook" / "debian" / folder
    assert tools == [unpacked / "usr" / "sbin" / "promtool"] * 2
    assert list(unpacked.parent.iterdir()) == [unpacked]
    assert (tmp_path / "log").read_text().split() == commands


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

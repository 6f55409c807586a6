"""Debian programs come from the machine, the cache or the archive, in that order."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.debian_tool import ToolUnavailable, debian_tool

# Stand-ins for the two programs: a "package" is a file, to unpack is to make one file.
APT_GET = """#!/bin/sh
echo "$@" >> "$LOG"
case "$1" in
  update) : > lists ;;
  download) test -e "$LISTS" || { echo "no lists" >&2; exit 100; }; : > "$2_1.0_all.deb" ;;
esac
"""
DPKG = """#!/bin/sh
/bin/mkdir -p "$3/usr/bin"
: > "$3/usr/bin/promtool"
"""


def machine(folder: Path, **programs: str) -> Mapping[str, str]:
    """The environment of a machine that has these programs only."""
    for name, text in programs.items():
        program = folder / "bin" / name.replace("_", "-")
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    log, lists = folder / "log", folder / "lists"
    log.touch()
    paths = {"PATH": folder / "bin", "XDG_CACHE_HOME": folder, "LOG": log, "LISTS": lists}
    return {name: str(path) for name, path in paths.items()}


def test_installed_program_is_used(tmp_path: Path) -> None:
    """What the machine has is not fetched again."""
    environ = machine(tmp_path, promtool="")

    assert debian_tool("prometheus", "promtool", environ=environ) == tmp_path / "bin" / "promtool"


def test_program_is_unpacked_into_cache(tmp_path: Path) -> None:
    """The program lands below the cache folder of the user, and nothing else is left there."""
    environ = machine(tmp_path, apt_get=APT_GET, dpkg=DPKG)
    (tmp_path / "lists").touch()

    tool = debian_tool("prometheus", "promtool", environ=environ)

    assert tool == tmp_path / "sidelook" / "debian" / "prometheus" / "usr" / "bin" / "promtool"
    assert tool.exists()
    assert list((tmp_path / "sidelook" / "debian").iterdir()) == [tool.parents[2]]


def test_daemon_is_found_where_it_lies(tmp_path: Path) -> None:
    """What a package has for administrators is a program, too."""
    environ = machine(tmp_path, apt_get=APT_GET, dpkg=DPKG.replace("usr/bin", "usr/sbin"))
    (tmp_path / "lists").touch()

    tool = debian_tool("prometheus", "promtool", environ=environ)

    assert tool.parts[-3:] == ("usr", "sbin", "promtool")


def test_cached_program_needs_no_network(tmp_path: Path) -> None:
    """A second call asks nobody."""
    environ = machine(tmp_path, apt_get=APT_GET, dpkg=DPKG)
    (tmp_path / "lists").touch()

    tools = [debian_tool("prometheus", "promtool", environ=environ) for _ in range(2)]

    assert tools[0] == tools[1]
    assert (tmp_path / "log").read_text() == "download prometheus\n"


def test_missing_lists_are_fetched_first(tmp_path: Path) -> None:
    """On a fresh machine the package lists are updated, then the download is tried again."""
    update = APT_GET.replace(": > lists", ': > "$LISTS"')
    environ = machine(tmp_path, apt_get=update, dpkg=DPKG)

    debian_tool("prometheus", "promtool", environ=environ)

    log = (tmp_path / "log").read_text().splitlines()
    assert log == ["download prometheus", "update", "download prometheus"]


def test_reason_is_told_without_apt(tmp_path: Path) -> None:
    """Where Debian's programs are missing, the text says which."""
    environ = machine(tmp_path)

    with pytest.raises(ToolUnavailable, match="no apt-get to fetch"):
        debian_tool("prometheus", "promtool", environ=environ)


def test_reason_is_told_without_network(tmp_path: Path) -> None:
    """Where the download fails, the text is what apt-get says, and the cache stays empty."""
    environ = machine(tmp_path, apt_get=APT_GET, dpkg=DPKG)

    with pytest.raises(ToolUnavailable, match=re.escape("apt-get download prometheus: no lists")):
        debian_tool("prometheus", "promtool", environ=environ)

    assert list((tmp_path / "sidelook" / "debian").iterdir()) == []


def test_program_of_another_package_is_told(tmp_path: Path) -> None:
    """A package that does not hold the program is named."""
    environ = machine(tmp_path, apt_get=APT_GET, dpkg=DPKG)
    (tmp_path / "lists").touch()

    with pytest.raises(ToolUnavailable, match="package prometheus holds no amtool"):
        debian_tool("prometheus", "amtool", environ=environ)

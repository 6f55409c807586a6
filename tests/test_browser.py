"""The browser of the tests is the machine's own; where there is none, it is said what to do."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.browser import chromium
from tests.debian_tool import ToolUnavailable

# Stands in for apt-get: "installs" a program beside itself, and writes down what it was asked.
APT_GET = """#!/bin/sh
echo "$@" >> "$LOG"
case "$1" in
  install) : > "$BIN/chromium"; /bin/chmod 755 "$BIN/chromium" ;;
esac
"""
FAILING = "#!/bin/sh\necho no network >&2\nexit 100\n"


def machine(folder: Path, **programs: str) -> Mapping[str, str]:
    """The environment of a machine that has these programs only."""
    binaries = folder / "bin"
    binaries.mkdir()
    for name, text in programs.items():
        program = binaries / name.replace("_", "-")
        program.write_text(text)
        program.chmod(0o755)
    paths = {"PATH": binaries, "BIN": binaries, "XDG_CACHE_HOME": folder, "LOG": folder / "log"}
    return {name: str(path) for name, path in paths.items()}


def test_installed_browser_is_used(tmp_path: Path) -> None:
    """Nothing is installed where there is one."""
    environ = machine(tmp_path, chromium="", apt_get=FAILING)

    assert chromium(environ=environ) == tmp_path / "bin" / "chromium"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs")
def test_missing_browser_is_installed(tmp_path: Path) -> None:
    """It comes from Debian, after the package lists, with a font to write with."""
    environ = machine(tmp_path, apt_get=APT_GET)

    assert chromium(environ=environ) == tmp_path / "bin" / "chromium"
    update, install = (tmp_path / "log").read_text().splitlines()
    assert update == "update"
    assert install.split()[-2:] == ["chromium", "fonts-dejavu-core"]


def test_machine_without_apt_is_told(tmp_path: Path) -> None:
    """The error names what is missing."""
    with pytest.raises(ToolUnavailable, match="no apt-get to install it with"):
        chromium(environ=machine(tmp_path))


def test_failed_installation_is_told(tmp_path: Path) -> None:
    """The error has what apt-get said."""
    with pytest.raises(ToolUnavailable, match=r"no network|only root"):
        chromium(environ=machine(tmp_path, apt_get=FAILING))

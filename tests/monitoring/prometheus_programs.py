"""Prometheus and its checker, from Debian's package; skipped where it cannot be had.

The programs only: who runs them knows with what.
"""

import subprocess
from pathlib import Path

import pytest

from tests.debian_tool import ToolUnavailable, debian_tool

TIMEOUT_S = 60.0


def prometheus_program(name: str) -> Path:
    """`prometheus` or `promtool`."""
    try:
        return debian_tool("prometheus", name)
    except ToolUnavailable as error:
        pytest.skip(f"{name} cannot be had: {error}")


def promtool(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """What it says."""
    command = [str(prometheus_program("promtool")), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)

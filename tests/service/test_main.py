"""The module that is run."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_module_is_the_program() -> None:
    """`python -m service` runs a command and ends with its exit code, without a traceback."""
    command = [sys.executable, "-m", "service", "check-config", "/nope.yaml"]

    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    fault = "/nope.yaml: cannot be read: No such file or directory\n"
    assert (ended.returncode, ended.stdout, ended.stderr) == (78, "", fault)

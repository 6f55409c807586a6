"""Whose processor time something takes."""

import subprocess
import sys

import pytest

from bench.process_cpu import KINDS, seconds_of

SPIN = "import time\nwhile time.process_time() < 0.3: pass"
IN_CHILD = f"input()\n{SPIN}\nprint(flush=True); input()"
IN_GRANDCHILD = f"""
import subprocess, sys
input()
subprocess.run([sys.executable, "-c", {SPIN!r}], check=True)
print(flush=True); input()
"""


@pytest.mark.parametrize("code", [IN_CHILD, IN_GRANDCHILD])
def test_time_is_told_by_kind_of_process(code: str) -> None:
    """A child that works shows in its kind, and not in another; its own that ends, too."""
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        spent = seconds_of(lambda: _let_work(child))
        child.communicate(b"\n")

    assert tuple(spent) == KINDS
    assert spent["Python workers"] > 0.1
    assert (spent["JVM"], spent["sidecar"]) == (0.0, 0.0)


def _let_work(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()

"""A Spark driver as a process of its own, which can be killed with its JVM.

The programs stand beside as `…_program.py`: each prints one line of JSON as its result.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240.0


def program_environ() -> dict[str, str]:
    """Workers run the Python and the code of the tests; everything stays on loopback."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """What a program said: its result, and what it and Spark wrote to standard error."""

    result: Any
    standard_error: str


@dataclass(frozen=True, slots=True)
class SparkProgram:
    """A module of this folder with its arguments."""

    module: str
    arguments: Sequence[str]

    def output(self) -> ProgramOutput:
        """Run it to its end, which must be a good one."""
        with tempfile.TemporaryFile("w+") as standard_error:
            with self._process(subprocess.PIPE, standard_error) as process:
                printed, _ = process.communicate(timeout=TIMEOUT_S)
            standard_error.seek(0)
            said = standard_error.read()
        assert process.returncode == 0, said
        return ProgramOutput(json.loads(printed.splitlines()[-1]), said)

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[str]"]:
        """Started; at the end driver and JVM get SIGKILL, as on a node that is lost."""
        with self._process(subprocess.DEVNULL, None) as process:  # its errors are the test's
            yield process

    @contextmanager
    def _process(self, output: Any, errors: Any) -> Iterator["subprocess.Popen[str]"]:  # noqa: ANN401 -- what Popen takes
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.end_to_end.{self.module}", *self.arguments],
            cwd=ROOT,
            env=program_environ(),
            stdout=output,
            stderr=errors,
            text=True,
            start_new_session=True,  # a group of its own, the JVM included
        )
        try:
            yield process
        finally:
            _kill_group(process)


def _kill_group(process: "subprocess.Popen[str]") -> None:
    with suppress(ProcessLookupError):  # all of it has ended by itself
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()

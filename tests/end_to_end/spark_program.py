"""A Spark driver in a process of its own, which can be killed with its JVM.

The programs are modules of this folder; each prints its result as a line of JSON.
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


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """The result of a program, and the standard error of the program and of Spark."""

    result: Any
    standard_error: str


@dataclass(frozen=True, slots=True)
class SparkProgram:
    """A module of this folder with its arguments."""

    module: str
    arguments: Sequence[str]

    def output(self) -> ProgramOutput:
        """Run the program to its end; raises AssertionError if it fails."""
        with tempfile.TemporaryFile("w+") as standard_error:
            with self._process(subprocess.PIPE, standard_error) as process:
                printed, _ = process.communicate(timeout=TIMEOUT_S)
            standard_error.seek(0)
            errors = standard_error.read()
        assert process.returncode == 0, errors
        return ProgramOutput(json.loads(printed.splitlines()[-1]), errors)

    @contextmanager
    def running(self) -> Iterator["subprocess.Popen[str]"]:
        """A started program; at the end driver and JVM get SIGKILL, as on a lost node."""
        with self._process(subprocess.DEVNULL, None) as process:
            yield process

    @contextmanager
    def _process(self, output: Any, errors: Any) -> Iterator["subprocess.Popen[str]"]:  # noqa: ANN401 -- what Popen takes
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.end_to_end.{self.module}", *self.arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdout=output,
            stderr=errors,
            text=True,
            start_new_session=True,  # a group of its own, with the JVM
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):  # all of the group has ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

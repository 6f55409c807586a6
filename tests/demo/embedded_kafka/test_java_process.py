"""A Java program as a process, where `java` is a script."""

import os
import subprocess
from pathlib import Path

import pytest

from demo.embedded_kafka.java_process import JavaProcess
from tests.demo.embedded_kafka.stub_programs import path_with, put_program
from tools.processes.until import until


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaProcess:
    """A process that says what it was told, and then does as its last argument says."""
    put_program(tmp_path, "java", 'echo "$@"; for last; do :; done; exec $last')
    monkeypatch.setenv("PATH", path_with(tmp_path))
    return JavaProcess(tmp_path, libraries=Path("/libraries"), name="program")


def test_program_gets_its_libraries_and_arguments(process: JavaProcess) -> None:
    """All libraries are on the class path; what it says is in its log."""
    process.run("Main", "/bin/true")

    said = process.log.read_text()
    assert said.endswith("-cp /libraries/* Main /bin/true\n")
    assert "-Xmx256m" in said


def test_failing_program_is_an_error(process: JavaProcess) -> None:
    """A program that is run to its end must end well."""
    with pytest.raises(subprocess.CalledProcessError):
        process.run("Main", "/bin/false")


def test_process_runs_until_it_is_stopped(process: JavaProcess) -> None:
    """It can be stopped twice, and started again."""
    states = [process.is_running]
    process.stop()
    for end in (process.stop, process.kill):
        process.start("Main", "sleep 60")
        states.append(process.is_running)
        end()
        states.append(process.is_running)
    process.stop()

    assert states == [False, True, False, True, False]


def test_frozen_process_does_nothing(process: JavaProcess, tmp_path: Path) -> None:
    """A frozen process is there, and goes on when it is thawed."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pipe.open("r+b", buffering=0) as said:
        process.start("Main", f"head -c1 {pipe}")
        process.freeze()
        said.write(b"x")  # what would end it
        with pytest.raises(AssertionError):
            until(lambda: not process.is_running, within_s=0.5)

        process.thaw()

        until(lambda: not process.is_running)


def test_what_does_not_stop_is_killed(process: JavaProcess) -> None:
    """A process that is frozen hears nothing, and is ended all the same."""
    process.start("Main", "sleep 60")
    process.freeze()

    process.stop(timeout_s=0.1)

    assert not process.is_running

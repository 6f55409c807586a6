"""The client's wheel with each supported PySpark and Python, in environments of their own."""

import faulthandler
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.compat.environments import (
    Environment,
    InstallationFailed,
    InterpreterMissing,
    built_wheel,
)
from tests.compat.pairs import AT_HAND, PAIRS, Pair
from tests.compat.run import compat_sidecar, names_for, run_checks
from tools.processes.sidecar_process import SidecarProcess

CASES = [
    pytest.param(pair, id=pair.name, marks=[pytest.mark.real_path] if pair is AT_HAND else [])
    for pair in PAIRS
]


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The client's wheel."""
    return built_wheel()


@pytest.fixture(scope="module")
def sidecar() -> Iterator[SidecarProcess]:
    """A sidecar with the dimensions of the checks."""
    with compat_sidecar() as sidecar:
        yield sidecar


def made(pair: Pair, wheel: Path) -> Environment:
    """The environment of a pair; skips the test without its Python or without an index."""
    environment = Environment(pair, wheel)
    # A first installation may last longer than a test; it and the program have own time limits.
    faulthandler.cancel_dump_traceback_later()
    try:
        environment.make()
    except InterpreterMissing as error:
        pytest.skip(str(error))
    except InstallationFailed as error:
        if "No solution found" in str(error):  # the requirements contradict each other
            raise
        pytest.skip(str(error))
    return environment


@pytest.mark.parametrize("pair", CASES)
def test_pair_passes_all_checks(pair: Pair, wheel: Path, sidecar: SidecarProcess) -> None:
    """With the exact versions of the pair, the installed wheel passes every check."""
    environment = made(pair, wheel)

    result = run_checks(environment, sidecar)

    assert result.versions == pair.versions
    assert result.outcomes == dict.fromkeys(names_for(pair))

"""Steps are printed with how they went."""

import re
import subprocess

import pytest

from tests.rehearsal.steps import StepFailed, demand, step


def test_step_that_goes_well_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """One line, with its seconds."""
    with step("pod: it lives"):
        demand([1], "nothing is there")

    assert re.fullmatch(r"ok {5} {,3}\d+\.\d s  pod: it lives\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    "error",
    [
        StepFailed("because"),
        AssertionError("because"),
        OSError("because"),
        subprocess.SubprocessError("because"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_step_that_fails_is_told(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    """With the reason; whoever plays learns its name."""
    with pytest.raises(StepFailed, match="pod: it lives"), step("pod: it lives"):
        raise error

    told = capsys.readouterr().out
    assert re.fullmatch(r"FAILED {,3}\d+\.\d s  pod: it lives: because\n", told)


def test_demand_that_is_not_met_says_why() -> None:
    """Nothing, 0 and False are not so."""
    with pytest.raises(StepFailed, match="nothing is there"):
        demand([], "nothing is there")

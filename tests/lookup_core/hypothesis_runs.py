"""Hypothesis runs: few examples in every run, many with `--nightly`.

The counts are parameters of one test, so that both profiles run the same code.
"""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

few_examples = settings(max_examples=25)  # of a test of one function, whose edges have own tests


def example_counts(*, quick: int, nightly: int) -> pytest.MarkDecorator:
    """Gives a test the parameter `examples`."""
    return pytest.mark.parametrize(
        "examples", [quick, pytest.param(nightly, marks=pytest.mark.full)]
    )


def run_model(machine: type[RuleBasedStateMachine], *, examples: int, steps: int) -> None:
    """Runs a model with courses of at most `steps` steps."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps)
    )

"""Hypothesis runs: few examples in every run, many in the full tier."""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

few_examples = settings(max_examples=25)  # for a function whose edge cases have tests of their own


def example_counts(*, quick: int, full: int) -> pytest.MarkDecorator:
    """Give a test the parameter `examples`."""
    return pytest.mark.parametrize("examples", [quick, pytest.param(full, marks=pytest.mark.full)])


QUICK_AND_FULL = example_counts(quick=25, full=500)


def run_model(machine: type[RuleBasedStateMachine], examples: int, *, steps: int = 40) -> None:
    """Run a model with at most this number of steps for each example."""
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=steps)
    )

"""Runs a hypothesis model in two sizes: a quick one for each change, the full one at night."""

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

QUICK_AND_FULL = pytest.mark.parametrize(
    "examples", [25, pytest.param(500, marks=pytest.mark.full)]
)


def run_model(model: type[RuleBasedStateMachine], examples: int, *, steps: int = 40) -> None:
    """Run this number of examples with at most this number of steps each."""
    run_state_machine_as_test(
        model, settings=settings(max_examples=examples, stateful_step_count=steps)
    )

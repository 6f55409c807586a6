"""What is due when, the earliest first, without memory for what is gone."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.dimension.deadlines import Deadlines


@pytest.fixture
def deadlines() -> Deadlines[int]:
    """Nothing is due."""
    return Deadlines()


def test_nothing_is_due_at_first(deadlines: Deadlines[int]) -> None:
    """Without names there is nothing to wait for."""
    assert (len(deadlines), deadlines.earliest(), deadlines.pop_due(9e9)) == (0, None, None)


def test_earliest_comes_first(deadlines: Deadlines[int]) -> None:
    """Names come at their times, whatever the order in which they were added."""
    for name, due_at in ((1, 7.0), (2, 5.0), (3, 6.0)):
        deadlines.add(name, due_at)

    assert [deadlines.pop_due(4.999), deadlines.pop_due(5.0)] == [None, 2]
    assert [deadlines.pop_due(9.0), deadlines.pop_due(9.0), deadlines.pop_due(9.0)] == [3, 1, None]


def test_equal_times_come_in_order_of_names(deadlines: Deadlines[int]) -> None:
    """Of two that are due together the older name comes first."""
    deadlines.add(2, 5.0)
    deadlines.add(1, 5.0)

    assert [deadlines.pop_due(5.0), deadlines.pop_due(5.0)] == [1, 2]


def test_discarded_name_is_never_due(deadlines: Deadlines[int]) -> None:
    """What is discarded is gone, and can be discarded again."""
    deadlines.add(1, 5.0)
    deadlines.add(2, 6.0)

    deadlines.discard(1)
    deadlines.discard(1)

    assert (deadlines.get(1), deadlines.get(2), deadlines.earliest()) == (None, 6.0, 6.0)
    assert deadlines.pop_due(9.0) == 2


def test_discarded_names_take_no_memory(deadlines: Deadlines[int]) -> None:
    """What was discarded long before its time takes no memory until then."""
    deadlines.add(0, 1.0)  # the first one, which hides those behind it

    for name in range(1, 10_000):
        deadlines.add(name, 3600.0)
        deadlines.discard(name)

    deadlines.check_invariants()
    assert (len(deadlines), deadlines.earliest()) == (1, 1.0)


class DeadlinesMachine(RuleBasedStateMachine):
    """Names that come, go and become due, against a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.deadlines: Deadlines[int] = Deadlines()
        self.model: dict[int, float] = {}

    @rule(names=st.sets(st.integers(0, 300)), due_at=st.integers(0, 9))
    def add(self, names: set[int], due_at: int) -> None:
        """Names get a time; those that have one keep it."""
        for name in names - self.model.keys():
            self.deadlines.add(name, due_at)
            self.model[name] = due_at

    @rule(names=st.sets(st.integers(0, 300)))
    def discard(self, names: set[int]) -> None:
        """Names go."""
        for name in names:
            self.deadlines.discard(name)
            self.model.pop(name, None)

    @precondition(lambda self: self.model)
    @rule(now=st.integers(0, 9))
    def pop_due(self, now: int) -> None:
        """The earliest comes, if it is due."""
        first = min((due_at, name) for name, due_at in self.model.items())

        assert self.deadlines.pop_due(now) == (first[1] if first[0] <= now else None)
        if first[0] <= now:
            del self.model[first[1]]

    @invariant()
    def names_are_those_of_the_model(self) -> None:
        """Nothing is lost, and nothing else is there."""
        self.deadlines.check_invariants()
        assert len(self.deadlines) == len(self.model)
        assert self.deadlines.earliest() == min(self.model.values(), default=None)


TestModel = DeadlinesMachine.TestCase
TestModel.settings = settings(max_examples=30, stateful_step_count=20)

"""The split ledger: each split has one state, at most one reader, and a growing position."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.split_ledger import Assignment, SplitLedger
from lookup_core.sources.splits import Split, SplitProgress, SplitState
from tests.lookup_core.hypothesis_runs import QUICK_AND_FULL, run_model

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
CHANGED = BackendError(ErrorCode.SCHEMA_CHANGED, "columns went")
A, B = Split("a"), Split("b")


def ledger_of(*splits: Split, assigned: int = 0, most_failures: int | None = None) -> SplitLedger:
    """A ledger of these splits; the first ones have readers."""
    ledger = SplitLedger(most_failures)
    ledger.on_discovered(splits)
    for _ in range(assigned):
        ledger.assign_next(0.0)
    return ledger


def test_failed_split_continues_after_delay() -> None:
    """A failed split is assigned after its delay, from its position."""
    ledger = ledger_of(A, assigned=1)
    ledger.on_progress("a", 7)

    assert not ledger.is_caught_up
    assert (ledger.on_failure("a", DOWN, now=10.0, jitter=1.0), ledger.next_due()) == (0.5, 10.5)
    assert [ledger.assign_next(10.4), ledger.assign_next(10.5)] == [None, Assignment(A, 7)]
    assert ledger.next_due() is None


def test_progress_resets_the_delay() -> None:
    """The delay is short again after the position grew or the end was reached."""
    ledger = ledger_of(A, assigned=1)
    delays = []
    for position, is_caught_up in ((5, False), (5, False), (6, False), (6, True)):
        ledger.on_progress("a", position, is_caught_up=is_caught_up)
        delays.append(ledger.on_failure("a", DOWN, now=0.0, jitter=1.0))
        ledger.assign_next(60.0)

    assert delays == [0.5, 1.0, 0.5, 0.5]


@pytest.mark.parametrize(
    ("most_failures", "error", "delays"),
    [
        (3, DOWN, [0.25, 0.5, None]),
        (3, CHANGED, [None]),
        (None, CHANGED, [0.25, 0.5, 1.0, 2.0]),
    ],
)
def test_failures_may_be_limited(
    most_failures: int | None, error: BackendError, delays: list[float | None]
) -> None:
    """With a limit, the last of several failures, or one that is not retriable, is final."""
    ledger = ledger_of(A, assigned=1, most_failures=most_failures)
    found = []
    for _ in delays:
        found.append(ledger.on_failure("a", error, now=0.0, jitter=0.0))
        ledger.assign_next(60.0)

    state = SplitState.FAILED if delays[-1] is None else SplitState.ASSIGNED
    assert (found, ledger.is_finished, ledger.next_due()) == (delays, False, None)
    assert [split.state for split in ledger.progress()] == [state]


def test_all_splits_must_catch_up() -> None:
    """A ledger is caught up when each split is caught up or finished; a failure ends that."""
    ledger = ledger_of(A, assigned=1)
    seen = [ledger.is_caught_up]
    ledger.on_progress("a", 1, is_caught_up=True)
    seen.append(ledger.is_caught_up)
    ledger.on_discovered([B])
    seen.append(ledger.is_caught_up)
    ledger.assign_next(0.0)
    ledger.on_finished("b")
    seen.append(ledger.is_caught_up)
    ledger.on_failure("a", DOWN, now=0.0, jitter=0.0)

    assert [*seen, ledger.is_caught_up] == [False, True, False, True, False]


def test_progress_has_the_last_error() -> None:
    """The last error is shown until the split advances; the number of failures stays."""
    ledger = ledger_of(A, assigned=1)
    ledger.on_progress("a", 1, total=9)
    ledger.on_failure("a", DOWN, now=0.0, jitter=0.0)
    (failed,) = ledger.progress()
    ledger.assign_next(1.0)
    ledger.on_progress("a", 2, total=9, is_caught_up=True)

    waiting = SplitProgress("a", SplitState.WAITING, position=1, total=9, failures_total=1)
    assert failed == replace(waiting, last_error="connection_lost: down")
    assert ledger.progress() == [
        replace(waiting, state=SplitState.ASSIGNED, position=2, is_caught_up=True)
    ]


class LedgerModel(RuleBasedStateMachine):
    """Splits are found, assigned, read, fail and end, next to a model of each."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = SplitLedger(4)
        self.now = 0.0
        self.states: dict[str, SplitState] = {}
        self.positions: dict[str, int | None] = {}
        self.due_at: dict[str, float] = {}

    @rule(numbers=st.sets(st.integers(0, 6)))
    def discover(self, numbers: set[int]) -> None:
        """Some splits are found, known ones among them."""
        ids = [str(number) for number in sorted(numbers)]
        new = [split_id for split_id in ids if split_id not in self.states]
        assert self.ledger.on_discovered(map(Split, ids)) == [Split(each) for each in new]
        self.states |= dict.fromkeys(new, SplitState.UNASSIGNED)
        self.positions |= dict.fromkeys(new)

    @rule(seconds=st.sampled_from([0.0, 0.2, 1.0, 40.0]))
    def assign(self, seconds: float) -> None:
        """Time passes, and a reader requests a split."""
        self.now += seconds
        due = {each for each, due_at in self.due_at.items() if due_at <= self.now}
        ready = due | self.in_state(SplitState.UNASSIGNED)
        assignment = self.ledger.assign_next(self.now)
        assert (assignment is None) == (not ready)
        if assignment is not None:
            split_id = assignment.split.id
            assert split_id in ready
            assert assignment.position == self.positions[split_id]
            self.due_at.pop(split_id, None)
            self.states[split_id] = SplitState.ASSIGNED

    @precondition(lambda self: self.in_state(SplitState.ASSIGNED))
    @rule(choice=st.data(), position=st.integers(0, 9), flags=st.sets(st.sampled_from("cb")))
    def progress(self, choice: st.DataObject, position: int, flags: set[str]) -> None:
        """A part of a split is read."""
        split_id = self.one_assigned(choice)
        before = self.positions[split_id]
        is_back = "b" in flags
        self.ledger.on_progress(split_id, position, is_caught_up="c" in flags, may_go_back=is_back)
        self.positions[split_id] = position if is_back else max(position, before or 0)

    @precondition(lambda self: self.in_state(SplitState.ASSIGNED))
    @rule(choice=st.data(), jitter=st.floats(0.0, 0.99), is_lasting=st.booleans())
    def fail(self, choice: st.DataObject, jitter: float, *, is_lasting: bool) -> None:
        """A reader fails."""
        split_id = self.one_assigned(choice)
        error = CHANGED if is_lasting else DOWN
        delay_s = self.ledger.on_failure(split_id, error, now=self.now, jitter=jitter)
        if delay_s is None:
            self.states[split_id] = SplitState.FAILED
        else:
            assert 0.25 <= delay_s <= 30.0
            assert not is_lasting
            self.states[split_id] = SplitState.WAITING
            self.due_at[split_id] = self.now + delay_s

    @precondition(lambda self: self.in_state(SplitState.ASSIGNED))
    @rule(choice=st.data())
    def finish(self, choice: st.DataObject) -> None:
        """A split ends."""
        split_id = self.one_assigned(choice)
        self.ledger.on_finished(split_id)
        self.states[split_id] = SplitState.FINISHED

    @invariant()
    def every_split_has_its_state(self) -> None:
        """The ledger has each split in the state and at the position of the record."""
        self.ledger.check_invariants()
        found = {each.split_id: (each.state, each.position) for each in self.ledger.progress()}
        assert found == {each: (self.states[each], self.positions[each]) for each in self.states}
        assert self.ledger.next_due() == min(self.due_at.values(), default=None)
        assert self.ledger.is_finished == (set(self.states.values()) <= {SplitState.FINISHED})

    def in_state(self, state: SplitState) -> set[str]:
        """The ids of the splits in this state."""
        return {split_id for split_id, each in self.states.items() if each is state}

    def one_assigned(self, choice: st.DataObject) -> str:
        """A split with a reader."""
        return choice.draw(st.sampled_from(sorted(self.in_state(SplitState.ASSIGNED))))


@QUICK_AND_FULL
def test_no_split_is_forgotten(examples: int) -> None:
    """No split is lost, assigned twice or read backwards."""
    run_model(LedgerModel, examples)

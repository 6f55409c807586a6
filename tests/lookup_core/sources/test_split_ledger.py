"""The ledger of splits: none is forgotten, none is had twice, and none is read backwards."""

from dataclasses import replace as replaced

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lookup_core.errors import BackendError, ErrorCode
from lookup_core.sources.split_ledger import Assignment, SplitLedger
from lookup_core.sources.splits import Split, SplitProgress, SplitState

DOWN = BackendError(ErrorCode.CONNECTION_LOST, "down")
CHANGED = BackendError(ErrorCode.SCHEMA_CHANGED, "columns went")
A, B = Split("a"), Split("b")


def ledger_of(*splits: Split, most_failures: int | None = None) -> SplitLedger:
    """A ledger that knows these."""
    ledger = SplitLedger(most_failures)
    ledger.on_discovered(splits)
    return ledger


def assigned(*splits: Split, most_failures: int | None = None) -> SplitLedger:
    """A ledger whose splits all have readers."""
    ledger = ledger_of(*splits, most_failures=most_failures)
    for _ in splits:
        ledger.assign_next(0.0)
    return ledger


def test_discovery_tells_what_is_new() -> None:
    """Only splits that were not known are new; one that is not found again stays."""
    ledger = SplitLedger(None)

    assert ledger.on_discovered([A]) == [A]
    assert ledger.on_discovered([A, B, B]) == [B]
    assert ledger.on_discovered([B]) == []
    assert [split.split_id for split in ledger.progress()] == ["a", "b"]


def test_splits_are_assigned_once_each() -> None:
    """In the order of discovery, from the beginning, and to one reader only."""
    ledger = ledger_of(A, B)

    assert ledger.assign_next(0.0) == Assignment(A, None)
    assert ledger.assign_next(0.0) == Assignment(B, None)
    assert ledger.assign_next(1e9) is None


def test_failed_split_goes_on_after_a_pause() -> None:
    """It waits, then the next reader gets it with the position up to which it was taken."""
    ledger = assigned(A)
    ledger.on_progress("a", 7)

    assert ledger.on_failure("a", DOWN, now=10.0, jitter=1.0) == 0.5
    assert ledger.next_due() == 10.5
    assert ledger.assign_next(10.4) is None
    assert ledger.assign_next(10.5) == Assignment(A, 7)
    assert ledger.next_due() is None


def test_getting_on_ends_a_row_of_failures() -> None:
    """The pause is short again once the position has grown, or the end was reached."""
    ledger = assigned(A)
    pauses = []
    for position, is_caught_up in ((5, False), (5, False), (6, False), (6, True)):
        ledger.on_progress("a", position, is_caught_up=is_caught_up)
        pauses.append(ledger.on_failure("a", DOWN, now=0.0, jitter=1.0))
        ledger.assign_next(60.0)

    assert pauses == [0.5, 1.0, 0.5, 0.5]


def test_repeated_failures_are_final_where_limited() -> None:
    """The third in a row of three is the last; the split is not assigned again."""
    ledger = assigned(A, most_failures=3)
    for _ in range(2):
        assert ledger.on_failure("a", DOWN, now=0.0, jitter=0.0) is not None
        ledger.assign_next(60.0)

    assert ledger.on_failure("a", DOWN, now=0.0, jitter=0.0) is None
    assert (ledger.assign_next(1e9), ledger.next_due(), ledger.is_finished) == (None, None, False)
    assert [split.state for split in ledger.progress()] == [SplitState.FAILED]


def test_lasting_error_is_final_at_once_where_limited() -> None:
    """What will fail again in the same way is not tried again, unless all is tried for ever."""
    assert assigned(A, most_failures=3).on_failure("a", CHANGED, now=0.0, jitter=0.0) is None
    assert assigned(A).on_failure("a", CHANGED, now=0.0, jitter=0.0) == 0.25


def test_position_goes_back_only_where_it_may() -> None:
    """What comes twice is no progress; what counts no more is read from its new beginning."""
    ledger = assigned(A)
    ledger.on_progress("a", 100)
    ledger.on_progress("a", 40)
    kept = ledger.progress()[0].position
    ledger.on_progress("a", 3, may_go_back=True)

    assert (kept, ledger.progress()[0].position) == (100, 3)


def test_caught_up_means_every_split() -> None:
    """A split that is new, or fails, is behind until it has caught up or is finished."""
    ledger = assigned(A)
    before = ledger.is_caught_up
    ledger.on_progress("a", 1, is_caught_up=True)
    caught_up = ledger.is_caught_up
    ledger.on_discovered([B])
    with_another = ledger.is_caught_up
    ledger.assign_next(0.0)
    ledger.on_finished("b")
    finished = ledger.is_caught_up
    ledger.on_failure("a", DOWN, now=0.0, jitter=0.0)

    assert (before, caught_up, with_another, finished) == (False, True, False, True)
    assert not ledger.is_caught_up


def test_all_finished_is_the_end() -> None:
    """The ledger is finished when its last split is; without splits it is from the start."""
    ledger = assigned(A, B)
    ledger.on_finished("a")
    half = ledger.is_finished
    ledger.on_finished("b")

    assert (SplitLedger(None).is_finished, half, ledger.is_finished) == (True, False, True)
    assert ledger.assign_next(1e9) is None


def test_only_assigned_splits_are_told_of() -> None:
    """Progress of a split that nobody reads is a defect, and changes nothing."""
    ledger = ledger_of(A)

    with pytest.raises(AssertionError, match="a is unassigned"):
        ledger.on_progress("a", 1)
    with pytest.raises(AssertionError, match="a is unassigned"):
        ledger.on_finished("a")
    with pytest.raises(AssertionError, match="a is unassigned"):
        ledger.on_failure("a", DOWN, now=0.0, jitter=0.0)
    assert ledger.progress() == [SplitProgress("a", SplitState.UNASSIGNED)]


def test_progress_tells_the_last_error() -> None:
    """It is shown while the split has not got on since; the number of failures stays."""
    ledger = assigned(A)
    ledger.on_progress("a", 1, total=9)
    ledger.on_failure("a", DOWN, now=0.0, jitter=0.0)
    failed = ledger.progress()
    ledger.assign_next(1.0)
    ledger.on_progress("a", 2, total=9, is_caught_up=True)

    waiting = SplitProgress("a", SplitState.WAITING, position=1, total=9, failures_total=1)
    assert failed == [replaced(waiting, last_error="connection_lost: down")]
    assert ledger.progress() == [
        replaced(waiting, state=SplitState.ASSIGNED, position=2, is_caught_up=True)
    ]


class LedgerMachine(RuleBasedStateMachine):
    """Splits that come, are assigned, get on, fail and end, against a plain record of each."""

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
        """Time goes by, and a reader asks for a split."""
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
        """A piece of one was taken."""
        split_id = self.one_assigned(choice)
        before = self.positions[split_id]
        is_back = "b" in flags
        self.ledger.on_progress(split_id, position, is_caught_up="c" in flags, may_go_back=is_back)
        self.positions[split_id] = position if is_back else max(position, before or 0)

    @precondition(lambda self: self.in_state(SplitState.ASSIGNED))
    @rule(choice=st.data(), jitter=st.floats(0.0, 0.99), is_lasting=st.booleans())
    def fail(self, choice: st.DataObject, jitter: float, *, is_lasting: bool) -> None:
        """The reader of one fails."""
        split_id = self.one_assigned(choice)
        error = CHANGED if is_lasting else DOWN
        pause_s = self.ledger.on_failure(split_id, error, now=self.now, jitter=jitter)
        if pause_s is None:
            self.states[split_id] = SplitState.FAILED
        else:
            assert 0.25 <= pause_s <= 30.0
            assert not is_lasting
            self.states[split_id] = SplitState.WAITING
            self.due_at[split_id] = self.now + pause_s

    @precondition(lambda self: self.in_state(SplitState.ASSIGNED))
    @rule(choice=st.data())
    def finish(self, choice: st.DataObject) -> None:
        """One comes to its end."""
        split_id = self.one_assigned(choice)
        self.ledger.on_finished(split_id)
        self.states[split_id] = SplitState.FINISHED

    @invariant()
    def tells_each_split_once(self) -> None:
        """No split is forgotten, and each is where the record has it."""
        self.ledger.check_invariants()
        told = {split.split_id: (split.state, split.position) for split in self.ledger.progress()}
        assert told == {each: (self.states[each], self.positions[each]) for each in self.states}
        assert self.ledger.next_due() == min(self.due_at.values(), default=None)
        assert self.ledger.is_finished == (set(self.states.values()) <= {SplitState.FINISHED})

    def in_state(self, state: SplitState) -> set[str]:
        """The ids of the splits in this state."""
        return {split_id for split_id, each in self.states.items() if each is state}

    def one_assigned(self, choice: st.DataObject) -> str:
        """Some split that has a reader."""
        return choice.draw(st.sampled_from(sorted(self.in_state(SplitState.ASSIGNED))))


TestLedgerModel = LedgerMachine.TestCase

"""Who may hold how many bytes of answers, and that none of them is lost or counted twice."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lookup_core.protocol.answer_budget import AnswerBudget

TOTAL_BYTES = 1000


def budget_of(*owners: str) -> AnswerBudget[str]:
    """A budget with these connections."""
    budget = AnswerBudget[str](TOTAL_BYTES)
    for owner in owners:
        budget.open(owner)
    return budget


def filled(budget: AnswerBudget[str], owner: str) -> int:
    """Take record after record of ten bytes, as long as there is room; how many there were."""
    count = 0
    while budget.records_that_fit(owner, 1, 10, wanted=1):
        budget.hold(owner, 1, 10)
        count += 1
    return count


def test_wanted_is_given_while_there_is_room() -> None:
    """Nobody else holds anything: what is asked for fits."""
    assert budget_of("a").records_that_fit("a", 1, 10, wanted=20) == 20


def test_connection_leaves_as_much_as_it_holds() -> None:
    """One alone gets half of all, the second half of the rest: there is always room for another."""
    budget = budget_of("a", "b", "c")

    assert (filled(budget, "a"), filled(budget, "b"), filled(budget, "c")) == (50, 25, 12)
    budget.check_invariants()


def test_channels_of_a_connection_leave_room_to_each_other() -> None:
    """One that has its share stops itself only; its neighbour has room, or for one large record."""
    budget = budget_of("a")
    filled(budget, "a")

    assert budget.records_that_fit("a", 1, 10, wanted=10) == 0
    assert budget.records_that_fit("a", 2, 10, wanted=10) == 10
    assert budget.records_that_fit("a", 3, 250, wanted=10) == 1
    assert budget.records_that_fit("a", 3, 251, wanted=10) == 0


def test_connection_with_many_channels_leaves_a_fourth() -> None:
    """However many channels a peer has that reads nothing, others find room."""
    budget = budget_of("a", "b")
    for channel in range(64):
        room = budget.records_that_fit("a", channel, 1, wanted=TOTAL_BYTES)
        budget.hold("a", channel, room)

    assert 3 * TOTAL_BYTES // 4 - 4 <= budget.used_bytes <= 3 * TOTAL_BYTES // 4 + 64
    assert budget.records_that_fit("b", 1, 10, wanted=1) == 1


def test_part_of_what_is_wanted_may_fit() -> None:
    """More than there is room for is cut, as long as it is worth a part of its own."""
    budget = budget_of("a")
    budget.hold("a", 1, 100)

    assert budget.records_that_fit("a", 1, 10, wanted=100) == 40
    assert budget.records_that_fit("a", 1, 10, wanted=200) == 0


def test_who_holds_nothing_gets_on() -> None:
    """One small record is always possible, whatever the others hold."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, 5 * TOTAL_BYTES)

    assert budget.records_that_fit("b", 1, TOTAL_BYTES // 64, wanted=50) == 1
    assert budget.records_that_fit("a", 1, 1, wanted=50) == 0


def test_too_large_records_come_one_by_one() -> None:
    """A record larger than all there is gets on, too, but one at a time on each connection."""
    budget = budget_of("a", "b")
    first = budget.records_that_fit("a", 1, 10 * TOTAL_BYTES, wanted=1)
    budget.hold("a", 1, 10 * TOTAL_BYTES)
    of_neighbour = budget.records_that_fit("a", 2, 10 * TOTAL_BYTES, wanted=1)
    of_another = budget.records_that_fit("b", 1, 10 * TOTAL_BYTES, wanted=1)
    budget.release("a", 1, 10 * TOTAL_BYTES)

    assert (first, of_neighbour, of_another) == (1, 0, 1)
    assert budget.records_that_fit("a", 2, 10 * TOTAL_BYTES, wanted=1) == 1


def test_peer_that_reads_nothing_stops_nobody() -> None:
    """However many channels have large records of a peer that takes none, others get theirs."""
    budget = budget_of("a", "b", "c")
    for channel in range(64):
        room = budget.records_that_fit("a", channel, TOTAL_BYTES // 10, wanted=1)
        budget.hold("a", channel, room * TOTAL_BYTES // 10)

    assert budget.used_bytes <= 3 * TOTAL_BYTES // 4
    for owner in ("b", "c"):
        assert budget.records_that_fit(owner, 1, TOTAL_BYTES // 2, wanted=1) == 1
        budget.hold(owner, 1, TOTAL_BYTES // 2)


def test_released_bytes_make_room() -> None:
    """What was sent is there for all."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, TOTAL_BYTES)
    assert budget.release("a", 1, TOTAL_BYTES - 100)

    assert budget.used_bytes == 100
    assert budget.records_that_fit("b", 1, 10, wanted=1000) == 45


def test_closed_connection_gives_all_back_once() -> None:
    """Whatever ends a connection, what comes late is harmless."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, 300)
    budget.hold("b", 1, 1)

    assert [budget.close("a"), budget.close("a")] == [True, False]
    assert not budget.hold("a", 1, 10)
    assert not budget.release("a", 1, 10)
    assert budget.used_bytes == 1
    budget.check_invariants()


def test_more_cannot_be_released_than_is_held() -> None:
    """That would be a defect, and would give others room that there is not."""
    budget = budget_of("a", "b")
    budget.hold("a", 1, 10)

    with pytest.raises(AssertionError):
        budget.release("b", 1, 1)


class BudgetMachine(RuleBasedStateMachine):
    """Connections come and go, take and give, against a dict of what they hold."""

    @initialize()
    def start(self) -> None:
        """Nobody is there."""
        self.budget = AnswerBudget[int](TOTAL_BYTES)
        self.held: dict[int, int] = {}
        self.opened = 0

    @rule()
    def open(self) -> None:
        """A newcomer."""
        self.opened += 1
        self.budget.open(self.opened)
        self.held[self.opened] = 0

    @rule(data=st.data(), record_bytes=st.integers(1, 400), wanted=st.integers(1, 100))
    def ask(self, data: st.DataObject, record_bytes: int, wanted: int) -> None:
        """Somebody takes what fits; it may turn out larger than was thought."""
        if not self.held:
            return
        owner = data.draw(st.sampled_from(sorted(self.held)))
        records = self.budget.records_that_fit(owner, 1, record_bytes, wanted=wanted)
        free_bytes = TOTAL_BYTES - sum(self.held.values())

        assert 0 <= records <= wanted
        assert records or self.held[owner] or (free_bytes < 0 and record_bytes > TOTAL_BYTES // 64)
        if records * record_bytes + self.held[owner] > free_bytes - records * record_bytes:
            assert not records or (records, self.held[owner]) == (1, 0)
        taken = records * data.draw(st.sampled_from([record_bytes, 3 * record_bytes]))
        assert self.budget.hold(owner, 1, taken)
        self.held[owner] += taken

    @rule(data=st.data(), share=st.floats(0, 1))
    def send(self, data: st.DataObject, share: float) -> None:
        """Some of what somebody holds leaves; or of what somebody held who is gone."""
        owner = data.draw(st.integers(0, self.opened))
        sent = int(self.held.get(owner, 100) * share)
        assert self.budget.release(owner, 1, sent) is (owner in self.held)
        if owner in self.held:
            self.held[owner] -= sent

    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        """Somebody leaves, or one who is not there."""
        owner = data.draw(st.integers(0, self.opened))
        assert self.budget.close(owner) is (self.held.pop(owner, None) is not None)

    @invariant()
    def books_agree(self) -> None:
        """What is used is what those who are there hold."""
        self.budget.check_invariants()
        assert self.budget.used_bytes == sum(self.held.values())


TestBudget = BudgetMachine.TestCase

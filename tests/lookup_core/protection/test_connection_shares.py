"""Connection shares: fair grants between dimensions, one connection left to the others, waits."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.protection.connection_shares import ConnectionShares, Ticket
from tests.lookup_core.hypothesis_runs import QUICK_AND_FULL, run_model

NAMES = ["a", "b", "c"]


class Shares:
    """Connection shares, and the tickets of the test; the test moves `now`."""

    def __init__(self, size: int, *dimensions: str) -> None:
        self.now = 0.0
        self.shares = ConnectionShares(size, dimensions)

    def request(self, dimension: str, count: int = 1, *, is_check: bool = False) -> list[Ticket]:
        """Tickets of one dimension."""
        made = [
            self.shares.request(dimension, self.now, on_grant=lambda: None, is_check=is_check)
            for _ in range(count)
        ]
        self.shares.check_invariants()
        return made

    def end(self, ticket: Ticket) -> Ticket | None:
        """End a ticket; returns the one that is granted instead."""
        granted = self.shares.end(ticket, self.now)
        self.shares.check_invariants()
        return granted


def granted(tickets: list[Ticket]) -> int:
    """The number of tickets that hold a connection."""
    return sum(each.is_granted for each in tickets)


@pytest.mark.parametrize(
    ("size", "requests", "held"),
    [
        (4, {"a": 5}, [4]),  # alone in its database
        (4, {"a": 5, "b": 2}, [3, 1]),
        (1, {"a": 2, "b": 1}, [1, 0]),
        (2, {"a": 2, "b": 0}, [1, 0]),  # a connection stays idle
    ],
)
def test_others_keep_one_connection(size: int, requests: dict[str, int], held: list[int]) -> None:
    """One dimension of several leaves one connection to the others, if there are several."""
    shares = Shares(size, *requests)

    assert [granted(shares.request(name, count)) for name, count in requests.items()] == held


def test_dimensions_take_turns() -> None:
    """The oldest ticket is granted; a dimension at its largest share waits for its own."""
    one, two = Shares(1, "a", "b"), Shares(2, "a", "b")
    [first, second], [other] = one.request("a", 2), one.request("b")
    [held, waiting] = two.request("a", 2)

    assert one.end(first) is second
    assert one.end(second) is other
    assert granted(two.request("b")) == 1
    assert two.end(held) is waiting


def test_oldest_of_equals_comes_first() -> None:
    """Among dimensions with equal shares, the oldest ticket is granted, and checks before it."""
    shares = Shares(2, "a", "b", "c")
    [held], [last] = shares.request("a"), shares.request("b")
    [of_c], [of_a], [check] = (
        shares.request("c"),
        shares.request("a"),
        shares.request("c", is_check=True),
    )

    assert shares.end(held) is check
    assert shares.end(check) is of_c
    assert shares.end(of_c) is of_a
    assert shares.end(last) is None


def test_waits_of_queries_are_counted() -> None:
    """The wait of a query counts until its grant or withdrawal; the wait of a check does not."""
    shares = Shares(1, "a", "b")
    [held, _, withdrawn] = shares.request("a", 3)
    [check] = shares.request("b", is_check=True)
    shares.now = 2.0
    shares.end(held)
    shares.end(check)
    shares.now = 3.0

    assert shares.shares.waited_s("a", shares.now) == 2.0 + 3.0
    shares.end(withdrawn)
    assert shares.shares.waited_s("a", 9.0) == 2.0 + 3.0
    assert shares.shares.waited_s("b", 9.0) == 0.0


class SharesModel(RuleBasedStateMachine):
    """Dimensions that request, use and return connections in any order."""

    @initialize(size=st.integers(1, 5), names=st.integers(1, 3))
    def begin(self, size: int, names: int) -> None:
        """A pool of some size for some dimensions."""
        self.size, self.names = size, NAMES[:names]
        self.shares = Shares(size, *self.names)
        self.open: list[Ticket] = []

    @rule(at=st.integers(0, 2), is_check=st.booleans())
    def request(self, at: int, *, is_check: bool) -> None:
        """A ticket waits only without a connection that its dimension may take."""
        name = self.names[at % len(self.names)]
        self.open += self.shares.request(name, is_check=is_check)

    @precondition(lambda self: self.open)
    @rule(at=st.integers(0, 99))
    def end(self, at: int) -> None:
        """At most one waiting ticket is granted: the first of the dimension with the fewest."""
        ticket = self.open.pop(at % len(self.open))
        waiting = [each for each in self.open if not each.is_granted]
        freed = self.shares.end(ticket)
        if freed is None:
            return
        assert freed in waiting
        fewest = self._held(freed.dimension) - 1
        passed = [each for each in waiting if each is not freed]
        assert all(
            self._held(each.dimension) >= fewest or self._held(each.dimension) == self._most()
            for each in passed
        )

    @invariant()
    def all_connections_are_usable(self) -> None:
        """Once all tickets of others ended, each dimension gets its largest share."""
        if not hasattr(self, "shares"):
            return
        assert granted(self.open) <= self.size
        for name in self.names:
            tickets = [each for each in self.open if each.dimension == name]
            assert granted(tickets) <= self._most()

    def teardown(self) -> None:
        """When all tickets have ended, every connection is free."""
        if not hasattr(self, "shares"):
            return
        while self.open:
            self.shares.end(self.open.pop())
        assert (
            sum(granted(self.shares.request(each, self.size)) for each in self.names) == self.size
        )

    def _held(self, name: str) -> int:
        return granted([each for each in self.open if each.dimension == name])

    def _most(self) -> int:
        return self.size if len(self.names) == 1 else max(1, self.size - 1)


@QUICK_AND_FULL
def test_connections_are_granted_fairly(examples: int) -> None:
    """No connection is lost, held twice, or idle while a dimension below its share waits."""
    run_model(SharesModel, examples)

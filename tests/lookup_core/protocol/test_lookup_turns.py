"""Whose lookup goes on next, and how far."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lookup_core.protocol.lookup_scheduler import LookupPart, LookupScheduler, Ticket

LATE = 1000.0


def turns_of(**lookups: list[int]) -> LookupScheduler[str]:
    """Lookups of so many records by channel; their tickets count from 1."""
    turns = LookupScheduler[str]()
    for channel, sizes in lookups.items():
        for records in sizes:
            turns.add(channel, records=records, deadline_s=LATE)
    return turns


def carried_out(
    turns: LookupScheduler[str], *, quantum: int, room: int = 10**6
) -> list[tuple[int, int, int]]:
    """(ticket, first record, how many) of all parts, in the order of the turns."""
    parts: list[tuple[int, int, int]] = []
    while turns.head() is not None:
        part = turns.take(quantum=quantum, room=room)
        turns.check_invariants()
        parts.append((part.ticket, part.records.start, len(part.records)))
    return parts


def test_small_lookup_is_one_part() -> None:
    """What fits into a turn is not divided."""
    assert carried_out(turns_of(a=[5]), quantum=10) == [(1, 0, 5)]


def test_channels_take_turns() -> None:
    """A channel with ten times the records has no more of the time than its neighbour."""
    assert carried_out(turns_of(a=[40], b=[10, 10]), quantum=10) == [
        *[(1, 0, 10), (2, 0, 10), (1, 10, 10), (3, 0, 10)],
        *[(1, 20, 10), (1, 30, 10)],
    ]


def test_small_lookups_share_a_turn() -> None:
    """A turn is measured in records, however many lookups they came in."""
    assert carried_out(turns_of(a=[4, 4, 4], b=[1]), quantum=8) == [
        *[(1, 0, 4), (2, 0, 4), (4, 0, 1), (3, 0, 4)]
    ]


def test_crumb_goes_along() -> None:
    """A turn is longer by half at the most, if that ends the lookup."""
    assert carried_out(turns_of(a=[15], b=[16]), quantum=10) == [(1, 0, 15), (2, 0, 10), (2, 10, 6)]


def test_part_is_not_larger_than_its_room() -> None:
    """What there is no room for stays; the channel's turn goes on."""
    turns = turns_of(a=[9], b=[3])

    assert turns.take(quantum=6, room=4) == LookupPart(Ticket(1), range(4))
    assert carried_out(turns, quantum=6) == [(1, 4, 2), (2, 0, 3), (1, 6, 3)]


def test_head_is_all_that_is_left() -> None:
    """Who asks for room knows for how much at most."""
    turns = turns_of(a=[15])
    turns.take(quantum=5, room=5)

    assert turns.head() == LookupPart(Ticket(1), range(5, 15))
    assert LookupScheduler[str]().head() is None


def test_stalled_channel_is_passed_over() -> None:
    """Others have their turns; what comes for the channel meanwhile waits behind its own."""
    turns = turns_of(a=[5], b=[5])
    turns.stall()
    turns.add("a", records=2, deadline_s=LATE)

    assert carried_out(turns, quantum=10) == [(2, 0, 5)]
    assert [turns.resume(), turns.resume()] == [True, False]
    assert carried_out(turns, quantum=10) == [(1, 0, 5), (3, 0, 2)]


def test_removed_lookup_is_not_carried_out() -> None:
    """The rest of it is told, once; the lookups behind it move up."""
    turns = turns_of(a=[9, 3], b=[1])
    turns.take(quantum=4, room=9)

    assert [turns.remove(Ticket(1)), turns.remove(Ticket(1))] == [range(4, 9), None]
    assert carried_out(turns, quantum=5) == [(3, 0, 1), (2, 0, 3)]
    assert len(turns) == 0


def test_stalled_lookup_may_be_removed() -> None:
    """With its only lookup the channel is gone, too."""
    turns = turns_of(a=[9])
    turns.stall()

    assert turns.remove(Ticket(1)) == range(9)
    assert not turns.resume()
    turns.check_invariants()


def test_overdue_lookup_leaves_the_line() -> None:
    """Stalled or not, when its time is over what is left of it is told."""
    turns = LookupScheduler[str]()
    turns.add("a", records=9, deadline_s=3.0)
    turns.add("b", records=5, deadline_s=2.0)
    turns.take(quantum=4, room=9)
    turns.stall()

    assert (turns.pop_expired(1.9), turns.next_deadline()) == ([], 2.0)
    assert turns.pop_expired(3.0) == [
        LookupPart(Ticket(2), range(5)),
        LookupPart(Ticket(1), range(4, 9)),
    ]
    assert (len(turns), turns.head(), turns.next_deadline()) == (0, None, None)


class TurnsMachine(RuleBasedStateMachine):
    """Lookups come, go and are carried out, against what every channel still has to get."""

    @initialize()
    def start(self) -> None:
        """Nobody is in line."""
        self.turns = LookupScheduler[str]()
        self.left: dict[Ticket, tuple[str, range]] = {}
        self.stalled: set[str] = set()
        self.now = 0.0
        self.deadlines: dict[Ticket, float] = {}

    @rule(channel=st.sampled_from("abc"), records=st.integers(1, 30), time_s=st.integers(1, 9))
    def add(self, channel: str, records: int, time_s: int) -> None:
        """A lookup arrives."""
        ticket = self.turns.add(channel, records=records, deadline_s=self.now + time_s)
        assert ticket not in self.left
        self.left[ticket] = (channel, range(records))
        self.deadlines[ticket] = self.now + time_s

    @precondition(lambda self: self.turns.head() is not None)
    @rule(quantum=st.integers(1, 20), room=st.integers(1, 40))
    def take(self, quantum: int, room: int) -> None:
        """The head goes on: it is its channel's oldest, and what is taken is what comes next."""
        head = self.turns.head()
        part = self.turns.take(quantum=quantum, room=room)

        assert head is not None
        channel, records = self.left[part.ticket]
        assert (head.ticket, head.records) == (part.ticket, records)
        assert part.ticket == min(
            each for each, (owner, _) in self.left.items() if owner == channel
        )
        assert part.records == records[: len(part.records)]
        assert 1 <= len(part.records) <= min(room, max(quantum, 20) * 3 // 2)
        self._keep(part.ticket, channel, records[len(part.records) :])

    @precondition(lambda self: self.turns.head() is not None)
    @rule()
    def stall(self) -> None:
        """There is no room for the head."""
        head = self.turns.head()
        assert head is not None
        self.stalled.add(self.left[head.ticket][0])
        self.turns.stall()

    @rule()
    def resume(self) -> None:
        """There is room again."""
        assert self.turns.resume() is bool(self.stalled)
        self.stalled.clear()

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """Somebody cancels a lookup, or one that is gone."""
        ticket = Ticket(data.draw(st.integers(0, max(self.left, default=1))))
        channel, records = self.left.get(ticket, ("", None))
        assert self.turns.remove(ticket) == records
        if records is not None:
            self._keep(ticket, channel, range(0))

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        """Time passes: those that are overdue come out, and no others."""
        self.now += seconds
        due = {ticket for ticket in self.left if self.deadlines[ticket] <= self.now}
        parts = self.turns.pop_expired(self.now)

        assert {part.ticket for part in parts} == due
        for part in parts:
            channel, records = self.left[part.ticket]
            assert part.records == records
            self._keep(part.ticket, channel, range(0))

    @invariant()
    def line_is_complete(self) -> None:
        """What nobody took is in line, and somebody has the turn unless all are passed over."""
        self.turns.check_invariants()
        assert len(self.turns) == len(self.left)
        ready = {channel for channel, _ in self.left.values()} - self.stalled
        assert (self.turns.head() is None) is (not ready)
        times = [self.deadlines[ticket] for ticket in self.left]
        assert self.turns.next_deadline() == min(times, default=None)

    def _keep(self, ticket: Ticket, channel: str, rest: range) -> None:
        if rest:
            self.left[ticket] = (channel, rest)
            return
        del self.left[ticket]
        if channel not in {owner for owner, _ in self.left.values()}:
            self.stalled.discard(channel)  # it comes anew


TestTurns = TurnsMachine.TestCase

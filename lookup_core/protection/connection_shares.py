"""Shares of a connection pool: max-min fairness between the dimensions of one database.

Counts connections and decides the order of the waiting tickets; opens no connection.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum


class TicketState(IntEnum):
    """The state of a ticket; it only grows."""

    WAITING = 0
    GRANTED = 1
    ENDED = 2


@dataclass(slots=True, eq=False)  # hashable by identity
class Ticket:
    """One request for a connection, for a query or for a check of a dimension.

    The shell calls `on_grant` if another ticket's end grants this one.
    """

    dimension: str
    is_check: bool
    waits_since: float
    on_grant: Callable[[], None]
    state: TicketState = TicketState.WAITING

    @property
    def is_granted(self) -> bool:
        """Whether it holds a connection."""
        return self.state is TicketState.GRANTED


@dataclass(slots=True)
class _Share:
    held: int = 0
    waited_s: float = 0.0  # by granted and withdrawn queries


class ConnectionShares:
    """The connections of one pool; `now` is monotonic seconds.

    A free connection goes to the waiting dimension that holds the fewest; among equals checks come
    first, then the oldest ticket. A granted ticket cannot be taken back. Therefore one dimension
    of several never holds the last connection: if its queries hang, the others go on.
    """

    def __init__(self, size: int, dimensions: Sequence[str]) -> None:
        self._size = size
        self._shares = {name: _Share() for name in dimensions}
        self._free = size
        self._waiting: list[Ticket] = []  # the oldest first

    @property
    def largest_share(self) -> int:
        """The number of connections that one dimension may hold."""
        return self._size if len(self._shares) == 1 else max(1, self._size - 1)

    def request(
        self,
        dimension: str,
        now: float,
        *,
        on_grant: Callable[[], None],
        is_check: bool = False,
    ) -> Ticket:
        """A ticket that is granted now, or waits until `end` of another ticket returns it."""
        ticket = Ticket(dimension, is_check, now, on_grant)
        if self._may_grant(ticket):
            self._grant(ticket, now)
        else:
            self._waiting.append(ticket)
        return ticket

    def end(self, ticket: Ticket, now: float) -> Ticket | None:
        """Return its connection, or end its wait; returns the ticket that is granted instead.

        Ending a ticket twice is a no-op.
        """
        state, ticket.state = ticket.state, TicketState.ENDED
        if state is TicketState.WAITING:
            self._waiting.remove(ticket)
            self._count_wait(ticket, now)
        elif state is TicketState.GRANTED:
            self._shares[ticket.dimension].held -= 1
            self._free += 1
        return self._grant_next(now)

    def waited_s(self, dimension: str, now: float) -> float:
        """The total time in which a query of this dimension waited for a connection."""
        own = (each for each in self._waiting if each.dimension == dimension and not each.is_check)
        return self._shares[dimension].waited_s + sum(now - each.waits_since for each in own)

    def check_invariants(self) -> None:
        """For tests: connections are counted, and none is free that a waiting ticket could get."""
        held = [share.held for share in self._shares.values()]
        assert sum(held) + self._free == self._size
        assert all(0 <= each <= self.largest_share for each in held)
        assert self._free >= 0
        for ticket in self._waiting:
            assert ticket.state is TicketState.WAITING
            assert not self._may_grant(ticket)

    def _grant_next(self, now: float) -> Ticket | None:
        grantable = [each for each in self._waiting if self._may_grant(each)]
        if not grantable:
            return None
        ticket = min(grantable, key=self._order)  # the oldest of equals
        self._waiting.remove(ticket)
        self._grant(ticket, now)
        return ticket

    def _may_grant(self, ticket: Ticket) -> bool:
        return self._free > 0 and self._shares[ticket.dimension].held < self.largest_share

    def _order(self, ticket: Ticket) -> tuple[int, bool]:
        return self._shares[ticket.dimension].held, not ticket.is_check

    def _grant(self, ticket: Ticket, now: float) -> None:
        ticket.state = TicketState.GRANTED
        self._shares[ticket.dimension].held += 1
        self._free -= 1
        self._count_wait(ticket, now)

    def _count_wait(self, ticket: Ticket, now: float) -> None:
        if not ticket.is_check:
            self._shares[ticket.dimension].waited_s += now - ticket.waits_since

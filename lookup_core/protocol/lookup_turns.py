"""Which of the lookups that were taken in is carried out next, and how much of it at a time.

Deficit round robin over channels (Shreedhar, Varghese: SIGCOMM 1995) with a record as the unit; the
lookups of one channel keep their order. Not the batcher: that forms queries of what was missed.
"""

from dataclasses import dataclass, field
from itertools import count
from typing import Generic, NewType, TypeVar

from lookup_core.dimension.deadlines import Deadlines

Ticket = NewType("Ticket", int)  # of one lookup, from its arrival on
Channel = TypeVar("Channel")


@dataclass(frozen=True, slots=True)
class LookupPart:
    """Records of one lookup that stand next to each other."""

    ticket: Ticket
    records: range  # by position in the lookup; never empty


@dataclass(slots=True)
class _Line:
    lookups: dict[Ticket, range] = field(default_factory=dict)  # what is left, oldest first
    deficit: int = 0  # records that the channel may still have in this turn


class LookupTurns(Generic[Channel]):
    """Lookups in line by channel; `deadline_s` and `now` are monotonic seconds."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._ready: dict[Channel, _Line] = {}  # whose turn it is comes first
        self._stalled: dict[Channel, _Line] = {}  # there is no room for their answers
        self._channels: dict[Ticket, Channel] = {}
        self._deadlines: Deadlines[Ticket] = Deadlines()

    def __len__(self) -> int:
        """How many lookups are in line."""
        return len(self._channels)

    def add(self, channel: Channel, *, records: int, deadline_s: float) -> Ticket:
        """Put a lookup of so many records, not none, at the end of its channel's line."""
        ticket = Ticket(next(self._tickets))
        line = self._stalled.get(channel) or self._ready.setdefault(channel, _Line())
        line.lookups[ticket] = range(records)
        self._channels[ticket] = channel
        self._deadlines.add(ticket, deadline_s)
        return ticket

    def head(self) -> LookupPart | None:
        """All that is left of the lookup whose turn it is; None when nothing can be done."""
        for line in self._ready.values():
            ticket = next(iter(line.lookups))
            return LookupPart(ticket, line.lookups[ticket])
        return None

    def take(self, *, quantum: int, room: int) -> LookupPart:
        """The part to carry out now, at least one record of the head and at most `room` of it.

        `quantum` is what its channel may have in one turn, in records.
        """
        channel, line = next(iter(self._ready.items()))
        ticket, records = next(iter(line.lookups.items()))
        line.deficit = line.deficit or quantum
        size = min(len(records), room)
        # A turn may be longer by half, rather than leave a crumb that costs a turn of its own.
        size = size if size <= line.deficit * 3 // 2 else line.deficit
        line.deficit = max(line.deficit - size, 0)
        self._cut(ticket, line, rest=records[size:])
        self._end_turn(channel, line)
        return LookupPart(ticket, records[:size])

    def stall(self) -> None:
        """Pass over the channel of the head until `resume`."""
        channel = next(iter(self._ready))
        line = self._stalled[channel] = self._ready.pop(channel)
        line.deficit = 0

    def resume(self) -> bool:
        """Let those that were passed over have their turns again; False if there are none.

        First of all: last, they would find the room taken each time, and never get on.
        """
        is_needed = bool(self._stalled)
        self._ready = {**self._stalled, **self._ready}
        self._stalled.clear()
        return is_needed

    def remove(self, ticket: Ticket) -> range | None:
        """Take a lookup out of the line; returns what was left of it, None if it is gone."""
        channel = self._channels.get(ticket)
        if channel is None:
            return None
        line = self._ready.get(channel) or self._stalled[channel]
        records = line.lookups[ticket]
        self._cut(ticket, line, rest=range(0))
        if not line.lookups:
            self._forget(channel)
        return records

    def pop_expired(self, now: float) -> list[LookupPart]:
        """Take out the lookups whose time is over."""
        expired = []
        while (ticket := self._deadlines.pop_due(now)) is not None:
            records = self.remove(ticket)
            assert records is not None  # who is out of the line has no deadline here
            expired.append(LookupPart(ticket, records))
        return expired

    def next_deadline(self) -> float | None:
        """When the time of the next lookup in line is over."""
        return self._deadlines.earliest()

    def check_invariants(self) -> None:
        """For tests: every lookup is in one line, with something left of it and a deadline."""
        assert not self._ready.keys() & self._stalled.keys()
        lines = self._ready | self._stalled
        found = {ticket: channel for channel, line in lines.items() for ticket in line.lookups}
        assert found == self._channels
        assert all(line.lookups and line.deficit >= 0 for line in lines.values())
        assert all(records for line in lines.values() for records in line.lookups.values())
        assert len(self._deadlines) == len(self._channels)

    def _cut(self, ticket: Ticket, line: _Line, *, rest: range) -> None:
        if rest:
            line.lookups[ticket] = rest
            return
        del line.lookups[ticket], self._channels[ticket]
        self._deadlines.discard(ticket)

    def _end_turn(self, channel: Channel, line: _Line) -> None:
        if not line.lookups:
            del self._ready[channel]
        elif not line.deficit:
            self._ready[channel] = self._ready.pop(channel)  # to the back

    def _forget(self, channel: Channel) -> None:
        self._ready.pop(channel, None)
        self._stalled.pop(channel, None)

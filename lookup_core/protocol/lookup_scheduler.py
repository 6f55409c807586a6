"""Lookup scheduler: deficit round robin over channels, with a quantum by measured cost."""

from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, NewType, TypeVar

from lookup_core.dimension.deadlines import Deadlines
from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerSize

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


class LookupScheduler(Generic[Channel]):
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


CHUNK_S = 0.004  # for so long others wait for the loop, and not much longer
MOST_RECORDS = 20_000
# Fewer are hardly quicker: what a chunk costs beside its records would be all of it, and a pace
# that takes that for their cost would make the next one smaller still.
LEAST_RECORDS = 800

_CAUTIOUS_S = 5e-6  # for one record, while nothing is known
_GAIN = 0.5


class Quantum:
    """The seconds that one record takes: an exponentially weighted mean with bounded growth."""

    def __init__(self, record_s: float = _CAUTIOUS_S) -> None:
        self.record_s = record_s

    @property
    def records(self) -> int:
        """So many records take about `CHUNK_S`, within the bounds."""
        return max(LEAST_RECORDS, min(int(CHUNK_S / self.record_s), MOST_RECORDS))

    def on_chunk(self, records: int, seconds: float) -> None:
        """A chunk of so many records, not none, took so long.

        A small one says little about the others: what it costs is mostly what every chunk costs.
        """
        found_s = max(seconds / records, CHUNK_S / MOST_RECORDS)
        gain = _GAIN * min(1.0, records / self.records)
        if found_s > self.record_s:
            self.record_s += gain * (found_s - self.record_s)
        else:
            # However quick it was: a chunk is at most twice as large as the one before.
            self.record_s = max(found_s, self.record_s * (1 - gain))


@dataclass(frozen=True, slots=True)
class Costs:
    """Of the records of one channel."""

    pace: Quantum = field(default_factory=Quantum)
    size: AnswerSize = field(default_factory=AnswerSize)


class LearnedCosts:
    """The costs of the newest channel of each dimension, which need not be open any more.

    `guess_bytes` is what the answer to a record has while nothing is known of a dimension.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = guess_bytes
        self._newest: dict[str, Costs] = {}  # {dimension: of its newest channel}

    def newcomer(self, dimension: str) -> Costs:
        """The costs that a new channel starts with, its own from now on."""
        known = self._newest.get(dimension) or Costs(size=AnswerSize(self._guess_bytes))
        costs = self._newest[dimension] = Costs(copy(known.pace), copy(known.size))
        return costs

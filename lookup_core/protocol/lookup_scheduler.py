"""Lookup scheduler: deficit round robin over channels, with a quantum by measured cost."""

from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import Generic, NewType, TypeVar

from lookup_core.deadlines import Deadlines
from lookup_core.protocol.answer_budget import FIRST_GUESS_BYTES, AnswerSize

Ticket = NewType("Ticket", int)  # of one lookup
Channel = TypeVar("Channel")


@dataclass(frozen=True, slots=True)
class LookupPart:
    """Consecutive records of one lookup."""

    ticket: Ticket
    records: range  # positions in the lookup; never empty


@dataclass(slots=True)
class _Queue:
    lookups: dict[Ticket, range] = field(default_factory=dict)  # records left, oldest first
    deficit: int = 0  # records left in the turn


class LookupScheduler(Generic[Channel]):
    """Queued lookups by channel; `deadline_s` and `now` are monotonic seconds."""

    def __init__(self) -> None:
        self._tickets = count(1)
        self._ready: dict[Channel, _Queue] = {}  # the channel whose turn it is comes first
        self._stalled: dict[Channel, _Queue] = {}  # without room for their answers
        self._channels: dict[Ticket, Channel] = {}
        self._deadlines: Deadlines[Ticket] = Deadlines()

    def __len__(self) -> int:
        """The number of queued lookups."""
        return len(self._channels)

    def add(self, channel: Channel, *, records: int, deadline_s: float) -> Ticket:
        """Add a lookup of at least one record to the queue of its channel."""
        ticket = Ticket(next(self._tickets))
        queue = self._stalled.get(channel) or self._ready.setdefault(channel, _Queue())
        queue.lookups[ticket] = range(records)
        self._channels[ticket] = channel
        self._deadlines.add(ticket, deadline_s)
        return ticket

    def head(self) -> LookupPart | None:
        """The records left of the lookup whose turn it is; None if no channel is ready."""
        for queue in self._ready.values():
            ticket = next(iter(queue.lookups))
            return LookupPart(ticket, queue.lookups[ticket])
        return None

    def take(self, *, quantum: int, room: int) -> LookupPart:
        """Remove the next part: at least one record of the head, at most `room` records.

        `quantum` is the number of records of one turn.
        """
        channel, queue = next(iter(self._ready.items()))
        ticket, records = next(iter(queue.lookups.items()))
        queue.deficit = queue.deficit or quantum
        size = min(len(records), room)
        # A turn may be half longer, to avoid a small rest that costs a turn of its own.
        size = size if size <= queue.deficit * 3 // 2 else queue.deficit
        queue.deficit = max(queue.deficit - size, 0)
        self._cut(ticket, queue, rest=records[size:])
        self._end_turn(channel, queue)
        return LookupPart(ticket, records[:size])

    def stall(self) -> None:
        """Skip the channel of the head until `resume`."""
        channel = next(iter(self._ready))
        queue = self._stalled[channel] = self._ready.pop(channel)
        queue.deficit = 0

    def resume(self) -> bool:
        """Make all stalled channels ready, before all others; False if there are none.

        Behind the others, they would find no room each time, and starve.
        """
        is_needed = bool(self._stalled)
        self._ready = {**self._stalled, **self._ready}
        self._stalled.clear()
        return is_needed

    def remove(self, ticket: Ticket) -> range | None:
        """Remove a lookup; returns the records left of it, None if it is not queued."""
        channel = self._channels.get(ticket)
        if channel is None:
            return None
        queue = self._ready.get(channel) or self._stalled[channel]
        records = queue.lookups[ticket]
        self._cut(ticket, queue, rest=range(0))
        if not queue.lookups:
            self._ready.pop(channel, None)
            self._stalled.pop(channel, None)
        return records

    def pop_expired(self, now: float) -> list[LookupPart]:
        """Remove the lookups whose deadline has passed."""
        expired = []
        while (ticket := self._deadlines.pop_due(now)) is not None:
            records = self.remove(ticket)
            assert records is not None  # only queued lookups have a deadline
            expired.append(LookupPart(ticket, records))
        return expired

    def next_deadline(self) -> float | None:
        """The earliest deadline of a queued lookup."""
        return self._deadlines.earliest()

    def check_invariants(self) -> None:
        """For tests: every lookup is in one queue, with records left and a deadline."""
        assert not self._ready.keys() & self._stalled.keys()
        queues = self._ready | self._stalled
        found = {ticket: channel for channel, queue in queues.items() for ticket in queue.lookups}
        assert found == self._channels
        assert all(queue.lookups and queue.deficit >= 0 for queue in queues.values())
        assert all(records for queue in queues.values() for records in queue.lookups.values())
        assert len(self._deadlines) == len(self._channels)

    def _cut(self, ticket: Ticket, queue: _Queue, *, rest: range) -> None:
        if rest:
            queue.lookups[ticket] = rest
            return
        del queue.lookups[ticket], self._channels[ticket]
        self._deadlines.discard(ticket)

    def _end_turn(self, channel: Channel, queue: _Queue) -> None:
        if not queue.lookups:
            del self._ready[channel]
        elif not queue.deficit:
            self._ready[channel] = self._ready.pop(channel)  # to the back


CHUNK_S = 0.004  # target for the time that a chunk blocks the event loop
MOST_RECORDS = 20_000
# In smaller chunks the fixed cost dominates; counted as cost of records, it would shrink the next
# chunk further.
LEAST_RECORDS = 800

_INITIAL_RECORD_S = 5e-6  # cautious
_GAIN = 0.5


class Quantum:
    """The seconds that one record takes: an exponentially weighted mean with bounded growth."""

    def __init__(self, record_s: float = _INITIAL_RECORD_S) -> None:
        self.record_s = record_s

    @property
    def records(self) -> int:
        """The number of records that take about `CHUNK_S`, within the bounds."""
        return max(LEAST_RECORDS, min(int(CHUNK_S / self.record_s), MOST_RECORDS))

    def on_chunk(self, records: int, seconds: float) -> None:
        """Learn from a chunk of at least one record; a small one, mostly overhead, counts less."""
        found_s = max(seconds / records, CHUNK_S / MOST_RECORDS)
        gain = _GAIN * min(1.0, records / self.records)
        if found_s > self.record_s:
            self.record_s += gain * (found_s - self.record_s)
        else:
            # A chunk is at most twice as large as the previous one.
            self.record_s = max(found_s, self.record_s * (1 - gain))


@dataclass(frozen=True, slots=True)
class Costs:
    """Learned costs of the records of one channel."""

    pace: Quantum = field(default_factory=Quantum)
    size: AnswerSize = field(default_factory=AnswerSize)


class LearnedCosts:
    """Initial costs of new channels: those of the newest channel of the same dimension.

    `guess_bytes` is the initial answer size of a record.
    """

    def __init__(self, guess_bytes: int = FIRST_GUESS_BYTES) -> None:
        self._guess_bytes = guess_bytes
        self._newest: dict[str, Costs] = {}  # {dimension: costs of its newest channel}

    def newcomer(self, dimension: str) -> Costs:
        """The initial costs of a new channel, as its own copy."""
        known = self._newest.get(dimension) or Costs(size=AnswerSize(self._guess_bytes))
        costs = self._newest[dimension] = Costs(copy(known.pace), copy(known.size))
        return costs

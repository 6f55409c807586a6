"""Turns of the queued lookups of all channels, within the byte budget of unsent answers."""

from itertools import count

from lookup_core.deadlines import Deadlines
from lookup_core.fair_turns import FairTurns
from lookup_core.protocol.answer_budget import AnswerBudget
from lookup_core.protocol.server_channel import LookupPart, ServerChannel, ServerLookup
from lookup_core.protocol.stream_effects import Submit

PART_BYTES = 4 * 1024 * 1024  # of answers: their bytes are held until the last one is sent


class LookupTurns:
    """Channels with queued lookups take turns; one without room for its answers is stalled."""

    def __init__(self, budget: AnswerBudget) -> None:
        self.budget = budget
        self._turns: FairTurns[ServerChannel] = FairTurns()
        self._stalled: dict[ServerChannel, None] = {}
        self._tickets = count(1)
        self._queued: dict[int, ServerLookup] = {}  # {ticket: lookup}
        self._deadlines: Deadlines[int] = Deadlines()
        self._is_changed = False  # since `next_part` returned None

    def __len__(self) -> int:
        """The number of queued lookups."""
        return len(self._queued)

    @property
    def is_due(self) -> bool:
        """Whether `next_part` or `next_deadline` may return something new."""
        return self._is_changed and len(self._queued) > 0

    def put(self, lookup: ServerLookup) -> Submit | None:
        """Queue a lookup of at least one record; returns its first part if no other is queued."""
        channel, ticket = lookup.channel, next(self._tickets)
        channel.queue[lookup] = ticket
        self._queued[ticket] = lookup
        self._deadlines.add(ticket, lookup.deadline_s)
        is_first = not self._turns
        if channel not in self._stalled:
            self._turns.enter(channel)
        submit = self.next_part() if is_first else None
        self._is_changed = True
        return submit

    def remove(self, lookup: ServerLookup) -> None:
        """Drop the queued records of a lookup; a no-op if none is queued."""
        channel, ticket = lookup.channel, lookup.channel.queue.pop(lookup, None)
        if ticket is None:
            return
        lookup.queued = None  # one slow key must not keep the whole frame
        del self._queued[ticket]
        self._deadlines.discard(ticket)
        if not channel.queue:
            self._turns.leave(channel)
            self._stalled.pop(channel, None)

    def next_part(self) -> Submit | None:
        """The records to submit next; their answers' bytes are held. None if none may be."""
        while self._turns:
            channel = self._turns.current
            lookup = next(iter(channel.queue))
            room = self._records_that_fit(lookup)
            if room:
                return self._cut(lookup, room)
            self._turns.leave(channel)
            self._stalled[channel] = None
        self._is_changed = False
        return None

    def hold(self, channel: ServerChannel, count_bytes: int) -> None:
        """Count bytes of a channel's answers, even beyond the budget."""
        self.budget.hold(channel.connection, channel.id, count_bytes)

    def release(self, channel: ServerChannel, count_bytes: int) -> None:
        """Return bytes of a channel's answers; stalled channels are next."""
        self.budget.release(channel.connection, channel.id, count_bytes)
        self._resume()

    def release_all(self, connection: int) -> None:
        """Return all bytes of a connection, which has ended."""
        self.budget.close(connection)
        self._resume()

    def pop_overdue(self, now: float) -> list[ServerLookup]:
        """The queued lookups whose deadline has passed, for `StreamServer.time_out`."""
        overdue = []
        while (ticket := self._deadlines.pop_due(now)) is not None:
            overdue.append(self._queued[ticket])
        return overdue

    def next_deadline(self) -> float | None:
        """The earliest deadline of a queued lookup."""
        return self._deadlines.earliest()

    def check_invariants(self) -> None:
        """For tests: a channel waits once, if it has queued lookups."""
        self.budget.check_invariants()
        channels = {lookup.channel for lookup in self._queued.values()}
        for channel in channels:
            assert (channel in self._turns) != (channel in self._stalled)
            assert channel.queue
        assert len(channels) == len(self._turns) + len(self._stalled)
        for ticket, lookup in self._queued.items():
            assert lookup.channel.queue[lookup] == ticket
        assert len(self._deadlines) == len(self._queued)

    def _records_that_fit(self, lookup: ServerLookup) -> int:
        assert lookup.queued is not None
        channel = lookup.channel
        record_bytes = channel.costs.size.record_bytes
        wanted = min(lookup.queued.num_rows, max(PART_BYTES // record_bytes, 1))
        return self.budget.records_that_fit(
            channel.connection, channel.id, record_bytes, wanted=wanted
        )

    def _cut(self, lookup: ServerLookup, room: int) -> Submit:
        """At most `room` of the queued records, as far as the channel's turn allows."""
        queued, channel = lookup.queued, lookup.channel
        assert queued is not None
        allowance = self._turns.allowance(channel.costs.time.records)
        size = min(queued.num_rows, room)
        # A turn may be half longer, to avoid a small rest that costs a turn of its own.
        size = size if size <= allowance * 3 // 2 else allowance
        self._turns.spend(size)
        part = LookupPart(
            lookup=lookup,
            start=lookup.records - queued.num_rows,
            unanswered=size,
            record_bytes=channel.costs.size.record_bytes,
        )
        lookup.parts.add(part)
        self.hold(channel, size * part.record_bytes)
        if size == queued.num_rows:
            self.remove(lookup)
        else:
            lookup.queued = queued.slice(size)
        return Submit(part, queued.slice(0, size))

    def _resume(self) -> None:
        if self._stalled:
            # Behind the others, they would find no room each time, and starve.
            self._turns.enter_first(self._stalled)
            self._stalled.clear()
            self._is_changed = True

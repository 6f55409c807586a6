"""Turns of the queued lookups of all channels, within the byte budget of unsent answers."""

from itertools import count

from lookup_core.deadlines import Deadlines
from lookup_core.fair_turns import FairTurns
from lookup_core.protocol.server_channel import NO_RECORDS, LookupPart, ServerChannel, ServerLookup
from lookup_core.protocol.stream_effects import Submit

PART_ANSWER_BYTES = 4 * 1024 * 1024  # they are held until the last answer is sent
_CONNECTION_ALPHA = 3  # a connection may hold three times the free bytes
_SMALL_SHARE = 64  # a record of at most this part of the total is small
_MIN_SHARE = 4  # less than this part of the wanted records is not worth a query


class LookupTurns:
    """Queued lookups of all channels, and the byte budget of their answers.

    Channels with queued lookups take turns; one without room for its answers is stalled. Thresholds
    of the budget are dynamic: a share is limited by the free bytes. Sizes are estimates, so that
    the total may be exceeded.
    """

    def __init__(self, answer_bytes: int) -> None:
        """`answer_bytes`: the budget."""
        self._total_bytes = answer_bytes
        self.used_bytes = 0  # may exceed the total
        self._held: dict[int, dict[int, int]] = {}  # {connection: {channel: bytes, not 0}}
        self._turns: FairTurns[ServerChannel] = FairTurns()
        self._stalled: dict[ServerChannel, None] = {}
        self._tickets = count(1)
        self._queued: dict[int, ServerLookup] = {}  # {ticket: lookup}
        # {channel with queued lookups: {lookup: ticket}}, oldest first
        self._queues: dict[ServerChannel, dict[ServerLookup, int]] = {}
        self.deadlines: Deadlines[int] = Deadlines()  # of the tickets; for reading only
        self._is_changed = False  # since `next_part` returned None
        self._has_released = False  # since a channel was stalled

    def __len__(self) -> int:
        """The number of queued lookups."""
        return len(self._queued)

    @property
    def is_due(self) -> bool:
        """Whether `next_part` or `deadlines` may have something new."""
        if not self._queued:
            return False
        return self._is_changed or (bool(self._stalled) and self._has_released)

    # The byte budget

    def records_that_fit(
        self, connection: int, channel: int, record_bytes: int, *, wanted: int
    ) -> int:
        """How many of the `wanted` records of this size may be submitted; at most about 4 MiB.

        0 if less than a quarter of them fits.
        A channel without bytes may have one record: a small one always, a large one if its
        connection has room for it, or holds no bytes.
        """
        wanted = min(wanted, max(PART_ANSWER_BYTES // record_bytes, 1))
        held = self._held.get(connection, {})
        held_bytes = held.get(channel, 0)
        connection_bytes = sum(held.values())
        free_bytes = self._total_bytes - self.used_bytes
        # Each limit holds after the grant, which reduces the free bytes.
        channel_room = (free_bytes - held_bytes) // 2
        connection_room = _CONNECTION_ALPHA * free_bytes - connection_bytes
        connection_room //= _CONNECTION_ALPHA + 1
        room = min(channel_room // record_bytes, connection_room // record_bytes, wanted)
        if not held_bytes:
            is_small = record_bytes * _SMALL_SHARE <= self._total_bytes
            may_have_one = is_small or not connection_bytes or record_bytes <= connection_room
            return max(room, 1 if may_have_one else 0)
        return room if room * _MIN_SHARE >= wanted else 0

    def change_held(
        self, connection: int, channel: int, *, added_bytes: int = 0, released_bytes: int = 0
    ) -> None:
        """Release bytes that the channel holds, and add others, even beyond the total."""
        held = self._held.setdefault(connection, {})
        left_bytes = held.pop(channel, 0) - released_bytes
        assert left_bytes >= 0
        if left_bytes + added_bytes:
            held[channel] = left_bytes + added_bytes
        self.used_bytes += added_bytes - released_bytes
        if released_bytes:
            self._has_released = True

    def close_connection(self, connection: int) -> None:
        """Return all bytes of the connection; a no-op if it has none."""
        self.used_bytes -= sum(self._held.pop(connection, {}).values())
        self._has_released = True

    # Turns

    def put(self, lookup: ServerLookup) -> Submit | None:
        """Queue a lookup of at least one record; returns its first part if no other is queued."""
        channel = lookup.channel
        if self._stalled:
            self._resume_stalled()
        is_first = not self._queued or not self._turns
        if is_first and channel not in self._stalled:
            costs = channel.costs
            fitting = self.records_that_fit(
                channel.connection, channel.id, costs.size.record_bytes, wanted=lookup.records
            )
            if min(fitting, costs.time.records * 3 // 2) >= lookup.records:
                return self._part(lookup, lookup.records)  # the usual case needs no turn
        self._enqueue(lookup)
        submit = self.next_part() if is_first else None
        self._is_changed = True
        return submit

    def remove(self, lookup: ServerLookup) -> None:
        """Drop the queued records of a lookup; a no-op if none is queued."""
        channel, queue = lookup.channel, self._queues.get(lookup.channel, {})
        ticket = queue.pop(lookup, None)
        if ticket is None:
            return
        lookup.queued = NO_RECORDS  # one slow key must not keep the whole frame
        del self._queued[ticket]
        self.deadlines.discard(ticket)
        if not queue:
            del self._queues[channel]
            self._turns.leave(channel)
            self._stalled.pop(channel, None)

    def next_part(self) -> Submit | None:
        """The records to submit next; their answers' bytes are held. None if none may be."""
        if self._stalled:
            self._resume_stalled()
        while self._turns:
            channel = self._turns.current
            lookup = next(iter(self._queues[channel]))
            size = self.records_that_fit(
                channel.connection,
                channel.id,
                channel.costs.size.record_bytes,
                wanted=lookup.queued_records,
            )
            if size:
                turn = self._turns.allowance(channel.costs.time.records)
                # A turn may be half longer, to avoid a small rest that costs a turn of its own.
                size = size if size <= turn * 3 // 2 else turn
                self._turns.spend(size)
                return self._part(lookup, size)
            self._has_released = False
            self._turns.leave(channel)
            self._stalled[channel] = None
        self._is_changed = False
        return None

    def pop_overdue(self, now: float) -> list[ServerLookup]:
        """The queued lookups whose deadline has passed, for `StreamServer.time_out`."""
        overdue = []
        while (ticket := self.deadlines.pop_due(now)) is not None:
            overdue.append(self._queued[ticket])
        return overdue

    def check_invariants(self) -> None:
        """For tests: a channel waits once, if it has queued lookups; the held bytes match."""
        counts = [count for held in self._held.values() for count in held.values()]
        assert self.used_bytes == sum(counts)
        assert min(counts, default=1) > 0
        for channel, queue in self._queues.items():
            assert (channel in self._turns) != (channel in self._stalled)
            assert queue
            assert all(lookup.queued_records for lookup in queue)
        assert len(self._queues) == len(self._turns) + len(self._stalled)
        for ticket, lookup in self._queued.items():
            assert self._queues[lookup.channel][lookup] == ticket
        assert len(self.deadlines) == len(self._queued)
        assert len(self._queued) == sum(len(queue) for queue in self._queues.values())

    def _enqueue(self, lookup: ServerLookup) -> None:
        channel, ticket = lookup.channel, next(self._tickets)
        self._queues.setdefault(channel, {})[lookup] = ticket
        self._queued[ticket] = lookup
        self.deadlines.add(ticket, lookup.deadline_s)
        if channel not in self._stalled:
            self._turns.enter(channel)

    def _part(self, lookup: ServerLookup, size: int) -> Submit:
        queued, channel = lookup.queued, lookup.channel
        record_bytes = channel.costs.size.record_bytes
        part = LookupPart(lookup, lookup.records - queued.num_rows, size, record_bytes)
        lookup.parts.add(part)
        self.change_held(channel.connection, channel.id, added_bytes=size * record_bytes)
        if size < queued.num_rows:
            lookup.queued = queued.slice(size)
        else:
            lookup.queued = NO_RECORDS
            if channel in self._queues:
                self.remove(lookup)
        return Submit(part, queued.slice(0, size))

    def _resume_stalled(self) -> None:
        if self._has_released:
            # Behind the others, they would find no room each time, and starve.
            self._turns.enter_first(self._stalled)
            self._stalled.clear()

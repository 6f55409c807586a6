"""Queue of all stream lookups: runs them in fair turns, a part at a time.

Between two parts the event loop serves frames, queries and other requests. `LookupScheduler`
chooses the next part, `Quantum` its size.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from lookup_core.dimension.batcher import ChannelId
from lookup_core.protocol.lookup_scheduler import LookupScheduler, Quantum, Ticket
from service.engine.pause import pause


class QueuedLookup(Protocol):
    """What the queue needs of a lookup; no method waits, and only `carry_out` may raise."""

    channel: ChannelId
    records: int
    deadline_s: float
    pace: Quantum  # of its channel

    def records_that_fit(self, wanted: int) -> int:
        """How many of `wanted` records the byte budget admits now; possibly 0."""

    def carry_out(self, records: range, now: float) -> None:
        """Submit these records, by position."""

    def time_out(self, records: range) -> None:
        """The deadline passed before these records were submitted."""

    def fail(self, error: Exception) -> None:
        """Report a defect of `carry_out`; the connection must end."""


@dataclass(slots=True, eq=False, kw_only=True)
class LookupQueue:
    """Runs queued lookups while `run` is active; for one event loop."""

    clock: Callable[[], float] = time.monotonic
    work_clock: Callable[[], float] = time.thread_time  # other processes do not count
    _scheduler: LookupScheduler[ChannelId] = field(default_factory=LookupScheduler)
    _lookups: dict[Ticket, QueuedLookup] = field(default_factory=dict)
    _tickets: dict[QueuedLookup, Ticket] = field(default_factory=dict)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __len__(self) -> int:
        """The number of queued lookups."""
        return len(self._scheduler)

    def now(self) -> float:
        """The clock of the deadlines, in monotonic seconds."""
        return self.clock()

    async def run(self) -> None:
        """Run queued lookups and time out overdue ones, until cancelled."""
        while True:
            self._end_overdue()
            if self._step():
                await asyncio.sleep(0)
            else:
                await self._pause(self._scheduler.next_deadline())

    def put(self, lookup: QueuedLookup) -> None:
        """Queue a lookup of at least one record; if the queue is empty, a part runs at once."""
        is_first = self._scheduler.head() is None
        ticket = self._scheduler.add(
            lookup.channel, records=lookup.records, deadline_s=lookup.deadline_s
        )
        self._lookups[ticket] = lookup
        self._tickets[lookup] = ticket
        if is_first:
            self._step()
        if self._scheduler:
            self._wake.set()

    def remove(self, lookup: QueuedLookup) -> None:
        """Remove a lookup; a no-op if it is not queued."""
        ticket = self._tickets.get(lookup)
        if ticket is not None:
            self._scheduler.remove(ticket)
            self._forget(ticket)

    def on_room(self) -> None:
        """Bytes were released: resume stalled lookups."""
        if self._scheduler.resume():
            self._wake.set()

    def _step(self) -> bool:
        while (head := self._scheduler.head()) is not None:
            lookup = self._lookups[head.ticket]
            room = lookup.records_that_fit(len(head.records))
            if room:
                part = self._scheduler.take(quantum=lookup.pace.records, room=room)
                if part.records.stop == lookup.records:
                    self._forget(part.ticket)
                self._carry_out(lookup, part.records)
                return True
            self._scheduler.stall()
        return False

    def _carry_out(self, lookup: QueuedLookup, records: range) -> None:
        begun_at = self.work_clock()
        try:
            lookup.carry_out(records, self.clock())
        except Exception as error:  # noqa: BLE001 -- reported, not swallowed
            # Border of the queue's task: a defect ends the connection of this lookup only.
            lookup.fail(error)
        lookup.pace.on_chunk(len(records), self.work_clock() - begun_at)

    def _end_overdue(self) -> None:
        for part in self._scheduler.pop_expired(self.clock()):
            lookup = self._lookups[part.ticket]
            self._forget(part.ticket)
            lookup.time_out(part.records)

    def _forget(self, ticket: Ticket) -> None:
        del self._tickets[self._lookups.pop(ticket)]

    async def _pause(self, until: float | None) -> None:
        await pause(self._wake, None if until is None else until - self.clock())
        self._wake.clear()

"""The line of all lookups that streams have asked: carried out in fair turns, a part at a time.

Between two parts the event loop is free for frames, queries and other requests. What is decided is
decided by `LookupTurns` and `ChunkPace`; what a lookup is, is its own business.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from lookup_core.dimension.batcher import ChannelId
from lookup_core.protocol.lookup_scheduler import LookupScheduler, Quantum, Ticket
from service.engine.pause import pause


class QueuedLookup(Protocol):
    """A lookup as the line sees it; nothing here waits, and only `carry_out` may fail."""

    turn: ChannelId
    records: int
    deadline_s: float
    pace: Quantum  # of its channel

    def records_that_fit(self, wanted: int) -> int:
        """For how many of so many records, or of a part of them, there is room; 0 for too few."""

    def carry_out(self, records: range, now: float) -> None:
        """Ask for these records, by position."""

    def time_out(self, records: range) -> None:
        """The time is over and these records were not asked for."""

    def fail(self, error: Exception) -> None:
        """To carry it out met a defect; its connection must end."""


class LookupQueue:
    """Carries lookups out while `run` runs; used by one event loop only."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        work_clock: Callable[[], float] = time.thread_time,  # others of the machine do not count
    ) -> None:
        self._clock = clock
        self._work_clock = work_clock
        self._turns: LookupScheduler[ChannelId] = LookupScheduler()
        self._lookups: dict[Ticket, QueuedLookup] = {}
        self._tickets: dict[QueuedLookup, Ticket] = {}
        self._wake = asyncio.Event()

    def __len__(self) -> int:
        """How many lookups are in line."""
        return len(self._turns)

    def now(self) -> float:
        """The time that deadlines are measured by, in monotonic seconds."""
        return self._clock()

    async def run(self) -> None:
        """Carry out what is in line and end what is overdue, until cancelled."""
        while True:
            self._end_overdue()
            if self._step():
                await asyncio.sleep(0)
            else:
                await self._pause(self._turns.next_deadline())

    def put(self, lookup: QueuedLookup) -> None:
        """Take a lookup of some records in; with nobody before it, it is begun at once."""
        is_first = self._turns.head() is None
        ticket = self._turns.add(lookup.turn, records=lookup.records, deadline_s=lookup.deadline_s)
        self._lookups[ticket] = lookup
        self._tickets[lookup] = ticket
        if is_first:
            self._step()
        if self._turns:
            self._wake.set()

    def remove(self, lookup: QueuedLookup) -> None:
        """Nobody wants this lookup any more; harmless when it is not in line."""
        ticket = self._tickets.get(lookup)
        if ticket is not None:
            self._turns.remove(ticket)
            self._forget(ticket)

    def on_room(self) -> None:
        """Bytes were given back: those that had no room may try again."""
        if self._turns.resume():
            self._wake.set()

    def _step(self) -> bool:
        while (head := self._turns.head()) is not None:
            lookup = self._lookups[head.ticket]
            quantum = lookup.pace.records
            room = lookup.records_that_fit(len(head.records))
            if room:
                part = self._turns.take(quantum=quantum, room=room)
                if part.records.stop == lookup.records:
                    self._forget(part.ticket)
                self._carry_out(lookup, part.records)
                return True
            self._turns.stall()
        return False

    def _carry_out(self, lookup: QueuedLookup, records: range) -> None:
        begun_at = self._work_clock()
        try:
            lookup.carry_out(records, self._clock())
        except Exception as error:  # noqa: BLE001 -- it is not swallowed, see below
            # The border of the line's task: a defect ends the connection that it concerns only.
            lookup.fail(error)
        lookup.pace.on_chunk(len(records), self._work_clock() - begun_at)

    def _end_overdue(self) -> None:
        for part in self._turns.pop_expired(self._clock()):
            lookup = self._lookups[part.ticket]
            self._forget(part.ticket)
            lookup.time_out(part.records)

    def _forget(self, ticket: Ticket) -> None:
        del self._tickets[self._lookups.pop(ticket)]

    async def _pause(self, until: float | None) -> None:
        await pause(self._wake, None if until is None else until - self._clock())
        self._wake.clear()

"""Connections of one database, shared by the queries and checks of its dimensions.

`ConnectionShares` decides; this part reports grants to those that wait. A dimension takes a
connection before it forms a batch, so that keys are gathered while all connections are in use.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from lookup_core.protection.connection_shares import ConnectionShares, Ticket

_UNLIMITED = 2**31


class ConnectionShare:
    """The part of one dimension in the connections of its database; for one event loop only."""

    def __init__(
        self,
        shares: ConnectionShares,
        dimension: str,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shares = shares
        self._dimension = dimension
        self._clock = clock
        self._requested: Ticket | None = None  # for the next query
        self.limit = shares.largest_share  # connections in use at the same time

    @property
    def is_awaited(self) -> bool:
        """Whether a query waits for a connection."""
        return self._requested is not None

    @property
    def waited_s(self) -> float:
        """The total time in which a query waited for a connection."""
        return self._shares.waited_s(self._dimension, self._clock())

    def take(self, on_grant: Callable[[], None]) -> Ticket | None:
        """A connection for a query that is due; None: `on_grant` is called once there is one."""
        ticket = self._requested
        if ticket is None:
            now = self._clock()
            ticket = self._shares.request(self._dimension, now, on_grant=on_grant)
        self._requested = None if ticket.is_granted else ticket
        return ticket if ticket.is_granted else None

    def withdraw(self) -> None:
        """No query is due: others may have the connection."""
        if self._requested is not None:
            self.release(self._requested)
            self._requested = None

    def release(self, ticket: Ticket) -> None:
        """A query has ended; a no-op if its connection is released."""
        granted = self._shares.end(ticket, self._clock())
        if granted is not None:
            granted.on_grant()

    @asynccontextmanager
    async def for_check(self) -> AsyncIterator[None]:
        """A connection for a probe, a description or a repeated query, until the block ends.

        Waits until one is free: a query that holds one ends at its timeout.
        """
        granted = asyncio.Event()
        ticket = self._shares.request(
            self._dimension, self._clock(), on_grant=granted.set, is_check=True
        )
        try:
            if not ticket.is_granted:
                await granted.wait()
            yield
        finally:
            self.release(ticket)


def unlimited(dimension: str) -> ConnectionShare:
    """The share of a dimension whose backend has no shared connections."""
    return ConnectionShare(ConnectionShares(_UNLIMITED, [dimension]), dimension)

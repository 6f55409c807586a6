"""Connections of one database, shared by the queries and checks of its dimensions.

`ConnectionShares` decides; this part reports grants to those that wait. A dimension takes a
connection before it forms a batch, so that keys are gathered while all connections are in use.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from lookup_core.protection.connection_shares import ConnectionShares, Ticket

_UNLIMITED = 2**31


class SharedConnections:
    """The connections of one pool; used by one event loop only."""

    def __init__(
        self, size: int, dimensions: Sequence[str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.shares = ConnectionShares(size, dimensions)
        self._clock = clock
        self._on_grant: dict[Ticket, Callable[[], None]] = {}

    def share(self, dimension: str) -> "ConnectionShare":
        """The part of one of the dimensions."""
        return ConnectionShare(self, dimension)

    def request(
        self, dimension: str, on_grant: Callable[[], None], *, is_check: bool = False
    ) -> Ticket:
        """A ticket; if it is not granted now, `on_grant` is called once it is."""
        ticket = self.shares.request(dimension, self._clock(), is_check=is_check)
        if not ticket.is_granted:
            self._on_grant[ticket] = on_grant
        return ticket

    def end(self, ticket: Ticket) -> None:
        """Return a connection, or end the wait for it; a no-op for an ended ticket."""
        self._on_grant.pop(ticket, None)
        granted = self.shares.end(ticket, self._clock())
        if granted is not None:
            self._on_grant.pop(granted)()

    def waited_s(self, dimension: str) -> float:
        """The total time in which a query of this dimension waited for a connection."""
        return self.shares.waited_s(dimension, self._clock())


class ConnectionShare:
    """The part of one dimension in the connections of its database."""

    def __init__(self, shared: SharedConnections, dimension: str) -> None:
        self._shared = shared
        self._dimension = dimension
        self._requested: Ticket | None = None  # for the next query

    @property
    def limit(self) -> int:
        """The number of connections that the dimension may use at the same time."""
        return self._shared.shares.largest_share

    @property
    def is_awaited(self) -> bool:
        """Whether a query waits for a connection."""
        return self._requested is not None

    @property
    def waited_s(self) -> float:
        """The total time in which a query waited for a connection."""
        return self._shared.waited_s(self._dimension)

    def take(self, on_grant: Callable[[], None]) -> Ticket | None:
        """A connection for a query that is due; None: `on_grant` is called once there is one."""
        ticket = self._requested or self._shared.request(self._dimension, on_grant)
        self._requested = None if ticket.is_granted else ticket
        return ticket if ticket.is_granted else None

    def withdraw(self) -> None:
        """No query is due: others may have the connection."""
        if self._requested is not None:
            self._shared.end(self._requested)
            self._requested = None

    def release(self, ticket: Ticket) -> None:
        """A query has ended; a no-op if its connection is released."""
        self._shared.end(ticket)

    @asynccontextmanager
    async def for_check(self) -> AsyncIterator[None]:
        """A connection for a probe, a description or a repeated query, until the block ends.

        Waits until one is free: a query that holds one ends at its timeout.
        """
        granted = asyncio.Event()
        ticket = self._shared.request(self._dimension, granted.set, is_check=True)
        try:
            if not ticket.is_granted:
                await granted.wait()
            yield
        finally:
            self._shared.end(ticket)


def unlimited(dimension: str) -> ConnectionShare:
    """The share of a dimension whose backend has no shared connections."""
    return SharedConnections(_UNLIMITED, [dimension]).share(dimension)

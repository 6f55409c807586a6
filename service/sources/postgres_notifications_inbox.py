"""What came over a session that listens, until it is read: in order, and bounded.

Not the session: it knows no connection and no clock.
"""

import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lookup_core.changelog.change import TableChange
from lookup_core.watermark_valve import NO_WATERMARK_MS

_JUST_CONNECTED = "notifications may have been lost before the connection was made"
_LOW_HALF = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Taken:
    """What was next, in the order of arrival; the loss comes first, if there was one."""

    payloads: Sequence[str]
    lost: TableChange | None  # that notifications before these are gone
    heartbeat_ms: int  # the server's clock at the last heartbeat among these, or NO_WATERMARK_MS

    @property
    def has_heartbeat(self) -> bool:
        """Whether the connection has shown that it hears."""
        return self.heartbeat_ms != NO_WATERMARK_MS


class PostgresNotificationsInbox:
    """Payloads and heartbeats; begins with a loss, because nobody knows what came before."""

    def __init__(self, *, max_bytes: int) -> None:
        self._lost: TableChange | None = TableChange(_JUST_CONNECTED)
        self._max_bytes = max_bytes
        self._entries: deque[str | int] = deque()  # payloads, and heartbeats in ms
        self._nbytes = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return self._lost is None and not self._entries

    def on_connected(self, last_transaction_id: int) -> None:
        """No later transaction than this one of the primary is among what is lost."""
        self._lost = TableChange(_JUST_CONNECTED, last_transaction_id & _LOW_HALF)

    def put(self, entry: str | int) -> bool:
        """A payload or a heartbeat; whether there was room for it."""
        size = sys.getsizeof(entry)
        if self._nbytes + size > self._max_bytes:
            return False
        self._entries.append(entry)
        self._nbytes += size
        return True

    def take(self, max_bytes: int) -> Taken:
        """At least one entry, if there is any, and no more than so many bytes beyond it."""
        lost, self._lost = self._lost, None
        payloads: list[str] = []
        heartbeat_ms, room = NO_WATERMARK_MS, max_bytes
        while self._entries and room > 0:
            entry = self._entries.popleft()
            self._nbytes -= sys.getsizeof(entry)
            room -= sys.getsizeof(entry)
            if isinstance(entry, str):
                payloads.append(entry)
            else:
                heartbeat_ms = entry
        return Taken(payloads, lost, heartbeat_ms)

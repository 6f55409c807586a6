"""How much all channels together may have sent and not yet had answered.

Each channel gets its exclusive share when it opens and gives it back when it closes; the sum of all
grants never exceeds the pool, which bounds the memory that waiting lookups can take.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

_RECORD_BYTES = 64  # what a waiting key costs beyond its bytes, at the least
_SHARE = 8  # a newcomer gets an eighth of what is left, so that latecomers get some too
_MOST_RECORDS = 20_000
_LEAST_RECORDS = 500

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Grant:
    """What one channel may have unanswered."""

    records: int
    bytes: int


class CreditLedger(Generic[Owner]):
    """Grants by channel out of one pool of bytes."""

    def __init__(self, pool_bytes: int) -> None:
        self._pool_bytes = pool_bytes
        self._grants: dict[Owner, Grant] = {}
        self._granted_bytes = 0

    def open(self, channel: Owner) -> Grant | None:
        """A share for a new channel; None when the pool cannot give a useful one."""
        assert channel not in self._grants
        left = self._pool_bytes - self._granted_bytes
        records = min(left // _SHARE // (2 * _RECORD_BYTES), _MOST_RECORDS)
        if records < _LEAST_RECORDS:
            return None
        grant = Grant(records, records * 2 * _RECORD_BYTES)
        self._grants[channel] = grant
        self._granted_bytes += grant.bytes
        return grant

    def close(self, channel: Owner) -> bool:
        """Take a channel's share back; False if it has none (any more)."""
        grant = self._grants.pop(channel, None)
        if grant is None:
            return False
        self._granted_bytes -= grant.bytes
        return True

    def check_invariants(self) -> None:
        """For tests: the grants add up, within the pool."""
        assert self._granted_bytes == sum(grant.bytes for grant in self._grants.values())
        assert self._granted_bytes <= self._pool_bytes

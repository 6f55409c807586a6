"""Credit ledger: exclusive and floating credit of all channels, from one pool of bytes.

The pool bounds the memory of waiting lookups. Each open channel has an exclusive share. The rest,
except for the shares of half of the channels that may still open, is floating: channels with a
backlog borrow it, and give it back to the pool as their lookups end when others need it.

After Flink's credit-based flow control. A channel may borrow as much as stays free: Choudhury and
Hahne, "Dynamic queue length thresholds" (1998).
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

RECORD_BYTES = 288  # memory of a waiting key beyond its payload; measured: 226 to 287
_MIN_SHARE_BYTES = 24 * 1024  # a smaller share is of no use
_MAX_SHARE_BYTES = 1024 * 1024
_SPARE = 2  # one in two of the shares that may still be opened is reserved,
_MIN_SPARE_SHARES = 64  # but at least this many

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Grant:
    """Credit, or the cost of a lookup: records, and bytes of payload."""

    records: int
    bytes: int

    @property
    def cost_bytes(self) -> int:
        """The bytes of the pool that it takes."""
        return self.records * RECORD_BYTES + self.bytes

    def plus(self, other: "Grant") -> "Grant":
        """The sum."""
        return Grant(self.records + other.records, self.bytes + other.bytes)

    def minus(self, other: "Grant") -> "Grant":
        """The difference."""
        return Grant(self.records - other.records, self.bytes - other.bytes)


NOTHING = Grant(0, 0)


class CreditLedger(Generic[Owner]):
    """Exclusive and floating credit by channel, from one pool of bytes."""

    def __init__(self, pool_bytes: int, *, max_channels: int) -> None:
        """With `max_channels` open, half of the pool is exclusive credit."""
        exclusive_bytes = pool_bytes // 2
        share_bytes = min(exclusive_bytes // max_channels, _MAX_SHARE_BYTES)
        half = max(share_bytes, _MIN_SHARE_BYTES) // 2
        self.share = Grant(half // RECORD_BYTES, half)
        self._pool_bytes = pool_bytes
        self._max_channels = max_channels
        self._most_shares = min(exclusive_bytes // self.share.cost_bytes, max_channels)
        self._free_bytes = pool_bytes
        self._floating: dict[Owner, Grant] = {}  # {open channel: floating credit}
        self.may_lend = True  # False: no channel gets more credit

    def open(self, channel: Owner) -> Grant | None:
        """The share of a new channel; None if none is left, or while it is lent.

        It is lent only if more than half of the channels are open, and others still hold floating
        credit because they send no lookups.
        """
        assert channel not in self._floating
        if len(self._floating) == self._most_shares or self._free_bytes < self.share.cost_bytes:
            return None
        self._floating[channel] = NOTHING
        self._free_bytes -= self.share.cost_bytes
        return self.share

    @property
    def is_full(self) -> bool:
        """Whether `max_channels` are open; otherwise a refused channel lacks bytes of the pool."""
        return len(self._floating) == self._max_channels

    def floating(self, channel: Owner) -> Grant:
        """The floating credit of a channel."""
        return self._floating[channel]

    def granted(self, channel: Owner) -> Grant:
        """The exclusive and the floating credit of a channel."""
        return self.share.plus(self._floating[channel])

    def lend(self, channel: Owner, wanted: Grant) -> Grant:
        """Lend up to `wanted`, but only as much as stays free.

        So one greedy channel gets half of the floating credit, two get a third each, and a later
        one always finds some.
        """
        if not self.may_lend:
            return NOTHING
        held = self._floating[channel]
        most_bytes = max((self._floating_bytes_left - held.cost_bytes) // 2, 0)
        lent, cost_bytes = wanted, wanted.cost_bytes
        if cost_bytes > most_bytes:
            records = wanted.records * most_bytes // cost_bytes
            lent = Grant(records, wanted.bytes * most_bytes // cost_bytes)
        self._floating[channel] = held.plus(lent)
        self._free_bytes -= lent.cost_bytes
        return lent

    def take_back(self, channel: Owner, ended: Grant, *, record_bytes: int) -> Grant:
        """The part of an ended lookup's cost that returns to the pool, not to its channel.

        Nothing, unless the channel holds more than is free: a steady stream keeps its credit. The
        channel keeps records of `record_bytes` each, as far as the cost of this lookup allows.
        """
        held = self._floating[channel]
        if held == NOTHING:
            return NOTHING
        excess_bytes = (held.cost_bytes - self._floating_bytes_left) // 2
        if excess_bytes <= 0:
            return NOTHING
        # Not in proportion to the ended lookup: a channel whose keys become smaller would return
        # its records and keep bytes of no use.
        kept_bytes = max(held.cost_bytes - excess_bytes, 0)
        kept = kept_bytes // (RECORD_BYTES + record_bytes)
        surplus = held.minus(Grant(kept, kept * record_bytes))
        records = min(max(surplus.records, 0), ended.records, -(-excess_bytes // RECORD_BYTES))
        left_bytes = max(excess_bytes - records * RECORD_BYTES, 0)
        taken = Grant(records, min(max(surplus.bytes, 0), ended.bytes, left_bytes))
        self._floating[channel] = held.minus(taken)
        self._free_bytes += taken.cost_bytes
        return taken

    def close(self, channel: Owner) -> bool:
        """Return all credit of a channel; False if it is not open."""
        floating = self._floating.pop(channel, None)
        if floating is None:
            return False
        self._free_bytes += self.share.plus(floating).cost_bytes
        return True

    def check_invariants(self) -> None:
        """For tests: sums match, and no credit is negative."""
        floating = self._floating.values()
        granted_bytes = sum(self.share.plus(grant).cost_bytes for grant in floating)
        assert self._free_bytes + granted_bytes == self._pool_bytes
        assert all(grant.records >= 0 and grant.bytes >= 0 for grant in floating)
        assert len(floating) <= self._most_shares
        assert self._free_bytes >= 0

    @property
    def _floating_bytes_left(self) -> int:
        """The bytes to lend; negative after many channels opened at once, until others return."""
        channels = len(self._floating)
        absent = self._most_shares - channels
        spare = min(max(absent // _SPARE, _MIN_SPARE_SHARES), absent)
        return self._free_bytes - spare * self.share.cost_bytes

"""Who may have how much sent and not yet answered: shares for all, and more for who asks for it.

Every channel has an exclusive share from OPEN to its end. What else the pool holds is floating, but
for the shares of half of those who may still come: it goes to channels with a backlog, and comes
back as their lookups end when others need it. The sum never exceeds the pool, which bounds the
memory that waiting lookups take, whatever their number.

Exclusive and floating are those of Flink's credit-based flow control; how much of the floating one
channel may have is that of Choudhury and Hahne, "Dynamic queue length thresholds" (1998): as much
as is still free.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

RECORD_BYTES = 288  # what a waiting key takes beyond its own bytes; measured: 226 to 287
_LEAST_SHARE_BYTES = 24 * 1024  # below, a channel is of no use
_MOST_SHARE_BYTES = 1024 * 1024
_SPARE = 2  # of the shares that may still be asked for, one in so many is kept,
_LEAST_SPARE_SHARES = 64  # and so many at the least

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class Grant:
    """So many records, and bytes on the wire."""

    records: int
    bytes: int

    @property
    def cost_bytes(self) -> int:
        """What it takes of the pool."""
        return self.records * RECORD_BYTES + self.bytes

    def plus(self, other: "Grant") -> "Grant":
        """Both together."""
        return Grant(self.records + other.records, self.bytes + other.bytes)

    def minus(self, other: "Grant") -> "Grant":
        """What is left of this one without the other."""
        return Grant(self.records - other.records, self.bytes - other.bytes)


NOTHING = Grant(0, 0)


@dataclass(frozen=True, slots=True)
class CreditStatistics:
    """What is granted and not given back, over all channels."""

    exclusive_records: int
    floating_records: int
    free_bytes: int


class CreditLedger(Generic[Owner]):
    """Shares and floating credit by channel, out of one pool of bytes."""

    def __init__(self, pool_bytes: int, *, max_channels: int) -> None:
        """Half of the pool is for exclusive shares, if there are as many channels as may be."""
        exclusive_bytes = pool_bytes // 2
        share_bytes = min(exclusive_bytes // max_channels, _MOST_SHARE_BYTES)
        half = max(share_bytes, _LEAST_SHARE_BYTES) // 2
        self.share = Grant(half // RECORD_BYTES, half)
        self._pool_bytes = pool_bytes
        self._most_shares = min(exclusive_bytes // self.share.cost_bytes, max_channels)
        self._lent_bytes = 0
        self._floating: dict[Owner, Grant] = {}  # {open channel: beyond its share}
        self.may_lend = True  # False: nobody gets more than he has; shares keep coming back

    def open(self, channel: Owner) -> Grant | None:
        """The share of a new channel; None when there is none left, or while it is lent.

        The latter only if more come than half of those that may, and the others keep what they have
        borrowed because they ask for nothing.
        """
        assert channel not in self._floating
        if len(self._floating) == self._most_shares or self._free_bytes < self.share.cost_bytes:
            return None
        self._floating[channel] = NOTHING
        return self.share

    def floating(self, channel: Owner) -> Grant:
        """What a channel has beyond its share."""
        return self._floating[channel]

    def lend(self, channel: Owner, wanted: Grant) -> Grant:
        """Floating credit, as much as is wanted or as there is.

        A channel gets at most as much as then is still free: one greedy channel ends with half of
        all, two with a third each, and a latecomer always finds something.
        """
        if not self.may_lend:
            return NOTHING
        held = self._floating[channel]
        most_bytes = (self._floating_bytes_left - held.cost_bytes) // 2
        lent = _within(wanted, max(most_bytes, 0))
        self._floating[channel] = held.plus(lent)
        self._lent_bytes += lent.cost_bytes
        return lent

    def take_back(self, channel: Owner, ended: Grant, *, record_bytes: int) -> Grant:
        """How much of an ended lookup's cost goes to the pool, and not to its channel again.

        Nothing, unless the channel holds more than is free: a steady stream keeps what it has. What
        stays is records with so many bytes each, as far as this lookup's cost allows.
        """
        held = self._floating[channel]
        excess_bytes = (held.cost_bytes - self._floating_bytes_left) // 2
        if excess_bytes <= 0:
            return NOTHING
        # Not in the proportion of what has ended: credit lent for large keys would go record by
        # record, and its bytes stay for good, of no use to a channel that now sends small ones.
        kept_bytes = max(held.cost_bytes - excess_bytes, 0)
        kept = kept_bytes // (RECORD_BYTES + record_bytes)
        surplus = max(held.records - kept, 0), max(held.bytes - kept * record_bytes, 0)
        records = min(surplus[0], ended.records, -(-excess_bytes // RECORD_BYTES))
        left_bytes = max(excess_bytes - records * RECORD_BYTES, 0)
        taken = Grant(records, min(surplus[1], ended.bytes, left_bytes))
        self._floating[channel] = held.minus(taken)
        self._lent_bytes -= taken.cost_bytes
        return taken

    def close(self, channel: Owner) -> bool:
        """Take all of a channel's credit back; False if it has none (any more)."""
        floating = self._floating.pop(channel, None)
        if floating is None:
            return False
        self._lent_bytes -= floating.cost_bytes
        return True

    def statistics(self) -> CreditStatistics:
        """What is granted now."""
        floating = self._floating.values()
        return CreditStatistics(
            exclusive_records=len(self._floating) * self.share.records,
            floating_records=sum(grant.records for grant in floating),
            free_bytes=self._free_bytes,
        )

    def check_invariants(self) -> None:
        """For tests: nothing is lent twice or lost, and nobody holds less than nothing."""
        floating = self._floating.values()
        assert self._lent_bytes == sum(grant.cost_bytes for grant in floating)
        assert all(grant.records >= 0 and grant.bytes >= 0 for grant in floating)
        assert len(floating) <= self._most_shares
        assert self._free_bytes >= 0

    @property
    def _free_bytes(self) -> int:
        exclusive_bytes = len(self._floating) * self.share.cost_bytes
        return self._pool_bytes - exclusive_bytes - self._lent_bytes

    @property
    def _floating_bytes_left(self) -> int:
        """What may be lent; less than nothing when many came at once, until others give back."""
        channels = len(self._floating)
        absent = self._most_shares - channels
        spare = min(max(absent // _SPARE, _LEAST_SPARE_SHARES), absent)
        return self._free_bytes - spare * self.share.cost_bytes


def _within(wanted: Grant, most_bytes: int) -> Grant:
    cost_bytes = wanted.cost_bytes
    if cost_bytes <= most_bytes:
        return wanted
    part = wanted.records * most_bytes // cost_bytes, wanted.bytes * most_bytes // cost_bytes
    return Grant(*part)

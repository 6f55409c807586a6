"""Who may have how much sent and not yet answered: shares for all, and more for who asks for it.

Every channel has an exclusive share from OPEN to its end. What else the pool holds is floating: it
goes to channels with a backlog, and comes back as their lookups end when others need it. The sum
never exceeds the pool, which bounds the memory that waiting lookups take, whatever their number.

Exclusive and floating are those of Flink's credit-based flow control; how much of the floating one
channel may have is that of Choudhury and Hahne, "Dynamic queue length thresholds" (1998): as much
as is still free.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

RECORD_BYTES = 512  # what a waiting key takes beyond its own bytes; measured: 380 to 390
_LEAST_SHARE_BYTES = 24 * 1024  # below, a channel is of no use
_MOST_SHARE_BYTES = 1024 * 1024

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
        """Half of the pool is for exclusive shares, as many as there may be channels."""
        exclusive_bytes = pool_bytes // 2
        share_bytes = min(exclusive_bytes // max_channels, _MOST_SHARE_BYTES)
        half = max(share_bytes, _LEAST_SHARE_BYTES) // 2
        self.share = Grant(half // RECORD_BYTES, half)
        self._pool_bytes = pool_bytes
        self._free_shares = min(exclusive_bytes // self.share.cost_bytes, max_channels)
        self._free_floating_bytes = pool_bytes - exclusive_bytes
        self._floating: dict[Owner, Grant] = {}  # {open channel: beyond its share}

    def open(self, channel: Owner) -> Grant | None:
        """The share of a new channel; None when there is none left."""
        assert channel not in self._floating
        if not self._free_shares:
            return None
        self._free_shares -= 1
        self._floating[channel] = NOTHING
        return self.share

    def floating(self, channel: Owner) -> Grant:
        """What a channel has beyond its share."""
        return self._floating[channel]

    def lend(self, channel: Owner, records: int, *, record_bytes: int) -> Grant:
        """Floating credit for a backlog of so many records of this size, as far as there is some.

        A channel gets at most as much as then is still free: one greedy channel ends with half of
        all, two with a third each, and a latecomer always finds something.
        """
        held = self._floating[channel]
        each_bytes = RECORD_BYTES + record_bytes
        most = (self._free_floating_bytes - held.cost_bytes) // (2 * each_bytes)
        count = max(min(records, most), 0)
        lent = Grant(count, count * record_bytes)
        self._floating[channel] = held.plus(lent)
        self._free_floating_bytes -= lent.cost_bytes
        return lent

    def take_back(self, channel: Owner, ended: Grant) -> Grant:
        """How much of an ended lookup's cost goes to the pool, and not to its channel again.

        Nothing, unless the channel holds more than is free: a steady stream keeps what it has.
        """
        held = self._floating[channel]
        excess_bytes = (held.cost_bytes - self._free_floating_bytes) // 2
        if excess_bytes <= 0 or not ended.records:
            return NOTHING
        wanted = -(-excess_bytes * ended.records // ended.cost_bytes)  # rounded up
        records = min(wanted, ended.records, held.records)
        taken = Grant(records, min(ended.bytes * records // ended.records, held.bytes))
        self._floating[channel] = held.minus(taken)
        self._free_floating_bytes += taken.cost_bytes
        return taken

    def close(self, channel: Owner) -> bool:
        """Take all of a channel's credit back; False if it has none (any more)."""
        floating = self._floating.pop(channel, None)
        if floating is None:
            return False
        self._free_shares += 1
        self._free_floating_bytes += floating.cost_bytes
        return True

    def statistics(self) -> CreditStatistics:
        """What is granted now."""
        floating = self._floating.values()
        return CreditStatistics(
            exclusive_records=len(self._floating) * self.share.records,
            floating_records=sum(grant.records for grant in floating),
            free_bytes=self._free_shares * self.share.cost_bytes + self._free_floating_bytes,
        )

    def check_invariants(self) -> None:
        """For tests: nothing is lent twice or lost, and nobody holds less than nothing."""
        floating = self._floating.values()
        lent_bytes = sum(grant.cost_bytes for grant in floating)
        assert lent_bytes + self._free_floating_bytes == self._pool_bytes - self._pool_bytes // 2
        assert all(grant.records >= 0 and grant.bytes >= 0 for grant in floating)
        shares = len(self._floating) + self._free_shares
        assert shares * self.share.cost_bytes <= self._pool_bytes // 2
        assert self._free_shares >= 0
        assert self._free_floating_bytes >= 0

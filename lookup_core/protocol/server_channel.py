"""One channel on the service's side: its credit, open lookups and watermark."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.frames import Credit, Lookup

_HEADROOM_BYTES = 16  # on top of the mean size of a channel's records, for the next ones
_REMEMBERED_RECORDS = 16_384  # of that mean; older ones count less and less


Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """A snapshot for `/v1/channels` and the metrics."""

    connection: int
    channel: int
    dimension: str
    origin: str
    exclusive_records: int  # of credit, granted
    floating_records: int
    credit_records: int  # granted and unused
    backlog_records: int
    in_flight_records: int  # asked, and their credit not sent back
    watermark_ms: int | None
    is_idle: bool


class ServerChannel(Generic[Owner]):
    """Sequence, credit and watermark of one channel; violations raise before any change."""

    def __init__(
        self,
        channel: int,
        dimension: str,
        origin: str,
        *,
        ledger: CreditLedger[Owner],
        owner: Owner,
    ) -> None:
        """`owner` is the channel's name in the ledger, which has opened it."""
        self.channel = channel
        self.dimension = dimension
        self.origin = origin
        self.is_closing = False
        self.is_idle = False
        self.watermark_ms: int | None = None
        self._ledger = ledger
        self._owner = owner
        self._next_sequence = 1
        self._held: dict[int, Grant] = {}  # {sequence: what its lookup uses}
        self._held_sum = NOTHING
        self._unsent: deque[Grant] = deque()  # given back or lent, but not sent yet
        self._unsent_sum = NOTHING
        self._asked = NOTHING  # lately
        self._backlog_records = 0

    @property
    def share(self) -> Grant:
        """The exclusive credit that it opens with."""
        return self._ledger.share

    @property
    def is_drained(self) -> bool:
        """Whether the peer has closed the channel, and all answers and credit are on their way."""
        return self.is_closing and not self._held and not self._unsent

    def on_lookup(self, frame: Lookup, records: int) -> Credit | None:
        """Charge a lookup of so many records; floating credit for what stands behind it, if any.

        Raises ProtocolViolation (`seq_gap`, `credit_violation`, `unknown_channel` after CLOSE).
        """
        cost = Grant(records, len(frame.payload))
        if self.is_closing:
            raise ProtocolViolation(
                ErrorCode.UNKNOWN_CHANNEL, f"LOOKUP after CLOSE on {self.channel}"
            )
        if frame.sequence != self._next_sequence:
            raise ProtocolViolation(
                ErrorCode.SEQUENCE_GAP, f"expected {self._next_sequence}, got {frame.sequence}"
            )
        if not self._has_credit_for(cost):
            raise ProtocolViolation(
                ErrorCode.CREDIT_VIOLATION,
                f"{cost.records} records of {cost.bytes} bytes on channel {self.channel}",
            )
        self._next_sequence += 1
        self._held[frame.sequence] = cost
        self._held_sum = self._held_sum.plus(cost)
        self._learn(cost)
        self._backlog_records = frame.backlog_records
        lent = self._ledger.lend(self._owner, self._wanted())
        return None if lent == NOTHING else self._to_send(lent)

    def on_ended(self, sequence: int) -> Credit | None:
        """The credit that goes back for a lookup, once; None if it is not held (any more).

        The peer may use it only when it was sent: until then it bounds what piles up for a peer
        that reads nothing. When others need all of it, it is credit of 0: what waits for the
        channel to be drained waits until the last answer is on its way, whoever gets the credit.
        """
        cost = self._held.pop(sequence, None)
        if cost is None:
            return None
        self._held_sum = self._held_sum.minus(cost)
        taken = self._ledger.take_back(self._owner, cost, record_bytes=self._mean_record_bytes())
        return self._to_send(cost.minus(taken))

    def on_credit_sent(self) -> None:
        """The oldest credit that was given back goes to the peer now, which may use it."""
        self._unsent_sum = self._unsent_sum.minus(self._unsent.popleft())

    def on_watermark(self, watermark_ms: int) -> None:
        """Note the channel's watermark, which never goes back."""
        known_ms = watermark_ms if self.watermark_ms is None else self.watermark_ms
        self.watermark_ms = max(watermark_ms, known_ms)

    def statistics(self, connection: int) -> ChannelStatistics:
        """What there is to see now."""
        floating = self._ledger.floating(self._owner)
        used = self._used()
        return ChannelStatistics(
            connection=connection,
            channel=self.channel,
            dimension=self.dimension,
            origin=self.origin,
            exclusive_records=self._ledger.share.records,
            floating_records=floating.records,
            credit_records=self._granted().records - used.records,
            backlog_records=0 if self.is_closing else self._backlog_records,
            in_flight_records=used.records,
            watermark_ms=self.watermark_ms,
            is_idle=self.is_idle,
        )

    def check_invariants(self) -> None:
        """For tests: what is used is what was not given back, within the grant."""
        assert self._held_sum == _sum(self._held.values())
        assert self._unsent_sum == _sum(self._unsent)
        assert self._has_credit_for(NOTHING)

    def _has_credit_for(self, cost: Grant) -> bool:
        granted, used = self._granted(), self._used().plus(cost)
        return used.records <= granted.records and used.bytes <= granted.bytes

    def _granted(self) -> Grant:
        return self._ledger.share.plus(self._ledger.floating(self._owner))

    def _used(self) -> Grant:
        return self._held_sum.plus(self._unsent_sum)

    def _to_send(self, grant: Grant) -> Credit:
        self._unsent.append(grant)
        self._unsent_sum = self._unsent_sum.plus(grant)
        return Credit(self.channel, grant.records, grant.bytes)

    def _wanted(self) -> Grant:
        # What the peer has not used, or will have when its CREDIT arrives, is for the backlog, too:
        # lookups that were sent together tell the same backlog several times.
        at_hand = self._granted().minus(self._held_sum)
        backlog_bytes = self._backlog_records * self._mean_record_bytes()
        return Grant(
            max(self._backlog_records - at_hand.records, 0), max(backlog_bytes - at_hand.bytes, 0)
        )

    def _learn(self, cost: Grant) -> None:
        asked = self._asked.plus(cost)
        is_much = asked.records > _REMEMBERED_RECORDS
        self._asked = Grant(asked.records // 2, asked.bytes // 2) if is_much else asked

    def _mean_record_bytes(self) -> int:
        # Bytes follow what the channel sends, so that they do not run out before the records.
        return -(-self._asked.bytes // max(self._asked.records, 1)) + _HEADROOM_BYTES


def _sum(grants: Iterable[Grant]) -> Grant:
    return reduce(Grant.plus, grants, NOTHING)


BURST = 20
PER_SECOND = 2.0  # clients ping every few seconds


class PingRateLimit:
    """Of one connection; `now` is monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._counted_at = now

    def take(self, now: float) -> bool:
        """Whether the peer may send a ping now; one that it may not send costs nothing."""
        left = min(self._left + (now - self._counted_at) * PER_SECOND, float(BURST))
        self._left, self._counted_at = left, now
        if left < 1:
            return False
        self._left -= 1
        return True

"""Service side of one channel: open lookups, watermark, and the credit that answers return."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.frames import Credit, Lookup
from lookup_core.rate_limits import TokenBucket

_HEADROOM_BYTES = 16  # added to the mean size of a record
_REMEMBERED_RECORDS = 16_384  # of that mean; older records count less

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Levels of one channel, for `/v1/channels` and the metrics."""

    connection: int
    channel: int
    dimension: str
    origin: str
    exclusive_records: int  # granted credit
    floating_records: int
    credit_records: int  # granted and unused
    backlog_records: int
    in_flight_records: int  # sent by the client, and their credit not returned
    watermark_ms: int | None
    is_idle: bool
    shared_keys: int = 0  # that the client looked up in shared memory


class ServerChannel(Generic[Owner]):
    """Sequence, credit and watermark of one channel; a violation raises before any change."""

    def __init__(
        self,
        channel: int,
        dimension: str,
        origin: str,
        *,
        ledger: CreditLedger[Owner],
        owner: Owner,
    ) -> None:
        """`owner` identifies the channel in the ledger, where it is open."""
        self.channel = channel
        self.dimension = dimension
        self.origin = origin
        self.is_closing = False
        self.is_idle = False
        self.watermark_ms: int | None = None
        self.keys_total = 0  # of all lookups
        self.shared_keys = 0  # of those in shared memory
        self.used_at_s = 0.0  # monotonic: when it was opened, or last had a lookup
        self.share = ledger.share  # the exclusive credit
        self._ledger = ledger
        self._owner = owner
        self._next_sequence = 1
        self._held: dict[int, Grant] = {}  # {sequence of an open lookup: cost of its open keys}
        self._held_sum = NOTHING
        self._unsent: deque[Grant] = deque()  # credit in the outbox, oldest first
        self._unsent_sum = NOTHING
        self._recent = NOTHING  # cost of recent lookups
        self._backlog_records = 0

    @property
    def is_drained(self) -> bool:
        """Whether the client closed the channel, and all answers and credit were sent."""
        return self.is_closing and not self._held and not self._unsent

    def silent_for_s(self, now: float) -> float:
        """How long the channel has had no lookup; 0 while it has one, or is closing."""
        is_used = self._held or self._unsent or self.is_closing
        return 0.0 if is_used else now - self.used_at_s

    def on_lookup(self, frame: Lookup, records: int) -> Credit | None:
        """Charge a lookup of this many records; returns floating credit for its backlog, if any.

        Raises ProtocolViolation (`seq_gap`, `credit_violation`, `unknown_channel` after CLOSE).
        """
        cost = Grant(records, len(frame.payload))
        if self.is_closing:
            detail = f"LOOKUP after CLOSE on {self.channel}"
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, detail)
        if frame.sequence != self._next_sequence:
            detail = f"expected {self._next_sequence}, got {frame.sequence}"
            raise ProtocolViolation(ErrorCode.SEQUENCE_GAP, detail)
        if not self._has_credit_for(cost):
            detail = f"{cost.records} records of {cost.bytes} bytes on channel {self.channel}"
            raise ProtocolViolation(ErrorCode.CREDIT_VIOLATION, detail)
        self._next_sequence += 1
        self.keys_total += records
        self._held[frame.sequence] = cost
        self._held_sum = self._held_sum.plus(cost)
        self._learn(cost)
        self._backlog_records = frame.backlog_records
        lent = self._ledger.lend(self._owner, self._wanted())
        return None if lent == NOTHING else self._to_send(lent)

    def on_answered(self, sequence: int, records: int) -> Credit | None:
        """The credit to send for a part of a lookup's records, before the last; None without any.

        Bytes return in proportion to the records; `on_ended` returns the rest.
        """
        left = self._held.get(sequence)
        if left is None or not records:
            return None
        cost = Grant(records, left.bytes * records // left.records)
        self._held[sequence] = left.minus(cost)
        back = self._released(cost)
        return None if back == NOTHING else self._to_send(back)

    def on_ended(self, sequence: int) -> Credit | None:
        """The credit to send for the rest of a lookup, once; None if it is not open.

        It stays charged until `on_credit_sent`, which bounds the queue for a client that does not
        read. It is 0 if other channels need all of it; `is_drained` waits for it nevertheless.
        """
        cost = self._held.pop(sequence, None)
        return None if cost is None else self._to_send(self._released(cost))

    def on_cached(self, keys: int, now: float) -> None:
        """Count keys that the client looked up in shared memory."""
        self.shared_keys += keys
        self.keys_total += keys
        self.used_at_s = now

    def on_credit_sent(self) -> None:
        """The oldest credit was sent: the client may use it."""
        self._unsent_sum = self._unsent_sum.minus(self._unsent.popleft())

    def on_watermark(self, watermark_ms: int) -> None:
        """Advance the watermark; an earlier one is ignored."""
        if self.watermark_ms is None or watermark_ms > self.watermark_ms:
            self.watermark_ms = watermark_ms

    def statistics(self, connection: int) -> ChannelStatistics:
        """Levels now."""
        floating = self._ledger.floating(self._owner)
        used = self._used()
        return ChannelStatistics(
            connection=connection,
            channel=self.channel,
            dimension=self.dimension,
            origin=self.origin,
            exclusive_records=self.share.records,
            floating_records=floating.records,
            credit_records=self._granted().records - used.records,
            backlog_records=0 if self.is_closing else self._backlog_records,
            in_flight_records=used.records,
            shared_keys=self.shared_keys,
            watermark_ms=self.watermark_ms,
            is_idle=self.is_idle,
        )

    def check_invariants(self) -> None:
        """For tests: sums match, and the used credit is within the granted one."""
        assert self._held_sum == _sum(self._held.values())
        assert self._unsent_sum == _sum(self._unsent)
        assert self._has_credit_for(NOTHING)

    def _has_credit_for(self, cost: Grant) -> bool:
        granted, used = self._granted(), self._used().plus(cost)
        return used.records <= granted.records and used.bytes <= granted.bytes

    def _granted(self) -> Grant:
        return self.share.plus(self._ledger.floating(self._owner))

    def _used(self) -> Grant:
        return self._held_sum.plus(self._unsent_sum)

    def _released(self, cost: Grant) -> Grant:
        """The part of this cost, no longer held, that returns to the client."""
        self._held_sum = self._held_sum.minus(cost)
        record_bytes = self._mean_record_bytes()
        return cost.minus(self._ledger.take_back(self._owner, cost, record_bytes=record_bytes))

    def _to_send(self, grant: Grant) -> Credit:
        self._unsent.append(grant)
        self._unsent_sum = self._unsent_sum.plus(grant)
        return Credit(self.channel, grant.records, grant.bytes)

    def _wanted(self) -> Grant:
        # Unused credit, sent or not, is also for the backlog: lookups that were sent together
        # report the same backlog several times.
        at_hand = self._granted().minus(self._held_sum)
        backlog_bytes = self._backlog_records * self._mean_record_bytes()
        return Grant(
            max(self._backlog_records - at_hand.records, 0), max(backlog_bytes - at_hand.bytes, 0)
        )

    def _learn(self, cost: Grant) -> None:
        self._recent = self._recent.plus(cost)
        if self._recent.records > _REMEMBERED_RECORDS:
            self._recent = Grant(self._recent.records // 2, self._recent.bytes // 2)

    def _mean_record_bytes(self) -> int:
        # Granted bytes follow the size of sent records, to last as long as granted records.
        return -(-self._recent.bytes // max(self._recent.records, 1)) + _HEADROOM_BYTES


def _sum(grants: Iterable[Grant]) -> Grant:
    return reduce(Grant.plus, grants, NOTHING)


PING_BURST = 20
PINGS_PER_SECOND = 2.0  # clients ping every few seconds


def ping_limit() -> TokenBucket:
    """The rate limit of one connection's pings."""
    return TokenBucket(PING_BURST, per_second=PINGS_PER_SECOND)

"""One channel as the service sees it: what it may send, what it waits for, how far its time is.

Pure bookkeeping of the protocol; the lookups themselves are the engine's.
"""

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from lookup_core.errors import ErrorCode, ProtocolViolation
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.frames import Credit, Lookup

_HEADROOM_BYTES = 16  # on top of the mean size of a channel's records, for the next ones


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
        self._used_records = 0  # by those, and by credit that was not sent back yet
        self._used_bytes = 0
        self._asked = NOTHING  # since the start
        self._unsent: deque[Credit] = deque()  # given back, but not sent yet
        self._backlog_records = 0

    @property
    def share(self) -> Grant:
        """The exclusive credit that it opens with."""
        return self._ledger.share

    @property
    def is_drained(self) -> bool:
        """Whether the peer has closed the channel, and every answer and all credit was sent."""
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
        self._use(cost)
        self._asked = self._asked.plus(cost)
        self._backlog_records = frame.backlog_records
        lent = self._ledger.lend(
            self._owner, frame.backlog_records, record_bytes=self._mean_record_bytes()
        )
        self._use(lent)  # until it is sent
        return self._to_send(lent)

    def on_ended(self, sequence: int) -> Credit | None:
        """The credit that goes back for a lookup, once; None if nothing does.

        That is when the lookup is not held (any more), or when others need all of its credit. The
        peer may use it only when it was sent: until then it bounds what piles up for a peer that
        reads nothing.
        """
        cost = self._held.pop(sequence, None)
        if cost is None:
            return None
        taken = self._ledger.take_back(self._owner, cost)
        self._unuse(taken)
        return self._to_send(cost.minus(taken))

    def on_credit_sent(self) -> None:
        """The oldest credit that was given back goes to the peer now, which may use it."""
        credit = self._unsent.popleft()
        self._unuse(Grant(credit.records, credit.bytes))

    def on_watermark(self, watermark_ms: int) -> None:
        """Note the channel's watermark, which never goes back."""
        known_ms = watermark_ms if self.watermark_ms is None else self.watermark_ms
        self.watermark_ms = max(watermark_ms, known_ms)

    def statistics(self, connection: int) -> ChannelStatistics:
        """What there is to see now."""
        floating = self._ledger.floating(self._owner)
        return ChannelStatistics(
            connection=connection,
            channel=self.channel,
            dimension=self.dimension,
            origin=self.origin,
            exclusive_records=self._ledger.share.records,
            floating_records=floating.records,
            credit_records=self._granted().records - self._used_records,
            backlog_records=self._backlog_records,
            in_flight_records=self._used_records,
            watermark_ms=self.watermark_ms,
            is_idle=self.is_idle,
        )

    def check_invariants(self) -> None:
        """For tests: what is used is what was not given back, within the grant."""
        unsent = [Grant(credit.records, credit.bytes) for credit in self._unsent]
        costs = [*self._held.values(), *unsent]
        assert self._used_records == sum(cost.records for cost in costs)
        assert self._used_bytes == sum(cost.bytes for cost in costs)
        assert self._has_credit_for(Grant(0, 0))

    def _has_credit_for(self, cost: Grant) -> bool:
        granted = self._granted()
        return (
            self._used_records + cost.records <= granted.records
            and self._used_bytes + cost.bytes <= granted.bytes
        )

    def _granted(self) -> Grant:
        return self._ledger.share.plus(self._ledger.floating(self._owner))

    def _use(self, grant: Grant) -> None:
        self._used_records += grant.records
        self._used_bytes += grant.bytes

    def _unuse(self, grant: Grant) -> None:
        self._used_records -= grant.records
        self._used_bytes -= grant.bytes

    def _to_send(self, grant: Grant) -> Credit | None:
        if not grant.records and not grant.bytes:
            return None
        credit = Credit(self.channel, grant.records, grant.bytes)
        self._unsent.append(credit)
        return credit

    def _mean_record_bytes(self) -> int:
        # Bytes follow what the channel sends, so that they do not run out before the records.
        return -(-self._asked.bytes // max(self._asked.records, 1)) + _HEADROOM_BYTES

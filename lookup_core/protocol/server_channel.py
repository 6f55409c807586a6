"""One channel on the server: its credit, lookups, event time, costs and figures.

Its methods change it. The ledger, the turns and the valve merge channels.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lookup_core.answer import Answer
from lookup_core.dimension_schema import DimensionSchema, version_columns
from lookup_core.errors import (
    BackendError,
    ErrorCode,
    InvalidRequest,
    ProtocolViolation,
    bad_frame,
    of_dimension,
)
from lookup_core.keys.typed_keys import KeyCasts, TypedKeys, named_key
from lookup_core.protocol.arrow_payload import BatchDecoder
from lookup_core.protocol.credit_ledger import NOTHING, CreditLedger, Grant
from lookup_core.protocol.frames import Cached, Credit, Lookup, Open
from lookup_core.record_costs import RecordCosts

_HEADROOM_BYTES = 16  # added to the mean size of a record
_MEAN_RECORDS = 16_384  # older records count less
_LONGEST_LOOKUP_WAY_S = 0.25  # from the client to the arrival

NO_RECORDS = pa.record_batch([], schema=pa.schema([]))


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


class ChannelSchema:
    """Key and columns of one channel, as its client requested them.

    Lookups fail without the columns `needed`, too, which are not in their answers.
    """

    def __init__(
        self, requested: Open, dimension: DimensionSchema, needed: Iterable[pa.Field] = ()
    ) -> None:
        """Raises InvalidRequest, naming the dimension, for columns or keys that do not fit."""
        self.requested = requested
        try:
            self.key = requested.key  # the client's types with the dimension's names
            self._latest: tuple[DimensionSchema, KeyCasts] | None = None
            if len(requested.key):  # otherwise the channel only describes the dimension
                self.key = named_key(requested.key, dimension)
                self._latest = (dimension, KeyCasts(self.key, dimension))
            select = dimension.select_versions if requested.is_as_of else dimension.select
            self.columns: pa.Schema = select(requested.columns)
            self.names = tuple(self.columns.names)
        except InvalidRequest as error:
            detail = of_dimension(requested.dimension, error.detail)
            raise InvalidRequest(error.code, detail) from error
        self.key_names = tuple(dimension.key.names)
        self.versions = version_columns(dimension.columns)
        self._opened = DimensionSchema(dimension.key, pa.schema([*self.columns, *needed]))

    def typed_keys(self, keys: pa.RecordBatch, dimension: DimensionSchema) -> TypedKeys:
        """The client's keys with the types of the dimension, which may have changed since OPEN.

        Raises BackendError (`schema_changed`) if the dimension lacks a column of the channel.
        """
        if self._latest is None or self._latest[0] is not dimension:
            if not dimension.still_offers(self._opened):
                detail = "the columns of the dimension changed after the channel was opened"
                raise BackendError(ErrorCode.SCHEMA_CHANGED, detail)
            self._latest = (dimension, KeyCasts(self.key, dimension))
        return self._latest[1].typed_keys(keys)


@dataclass(slots=True, eq=False)
class ServerLookup:
    """A LOOKUP from its arrival to its last answer; times are monotonic seconds."""

    channel: "ServerChannel"
    sequence: int
    records: int
    deadline_s: float
    timeout_s: float
    event_time_ms: int | None  # the latest of the records
    cost: Grant  # without answered records
    queued: pa.RecordBatch  # for the turns; NO_RECORDS once all records are submitted
    unanswered: int  # records
    parts: set["LookupPart"] = field(default_factory=set)  # submitted, with unanswered records

    @property
    def queued_records(self) -> int:
        """The number of records that are not submitted."""
        return int(self.queued.num_rows)

    def is_late(self, now: float) -> bool:
        """Whether a CANCEL is due to the client's deadline.

        That is earlier than ours by the time that the LOOKUP was on the way.
        """
        return self.deadline_s - now <= min(_LONGEST_LOOKUP_WAY_S, self.timeout_s / 10)


@dataclass(slots=True, eq=False)
class LookupPart:
    """Consecutive records of a lookup, which are submitted together."""

    lookup: ServerLookup
    start: int  # position of its first record in the lookup
    unanswered: int
    record_bytes: int  # reserved for each unanswered record


class ServerChannel:
    """All that the server knows of one channel; a violation raises before any change.

    `id` is unique in the process, `opened.channel` on its connection. Granted credit is at the
    client, or waits to be sent, or pays for unanswered lookups.
    """

    def __init__(
        self,
        channel_id: int,
        connection: int,
        *,
        schema: ChannelSchema,
        costs: RecordCosts,
        ledger: CreditLedger[int],
        now: float,
    ) -> None:
        """The channel must be open in the ledger."""
        self.id = channel_id
        self.connection = connection
        self.opened = schema.requested
        self.schema = schema
        self.share = ledger.share  # the exclusive credit
        self.costs = costs
        self.is_closing = False
        self.is_idle = False
        self.watermark_ms: int | None = None
        self.keys_total = 0
        self.lookups: dict[int, ServerLookup] = {}  # {sequence: unanswered lookup}
        self._used_at_s = now  # when it was opened, or last had a lookup
        self._reasons: dict[ErrorCode, str] = {}  # that were sent last
        self._decoder = BatchDecoder(schema.key)
        self._ledger = ledger
        self._next_sequence = 1
        self._at_client = ledger.share  # credit that the client may use
        self._unsent = NOTHING  # credit that waits to be sent
        self._unsent_count = 0  # CREDIT frames
        self._recent = NOTHING  # cost of recent lookups
        self._record_bytes = _HEADROOM_BYTES  # their mean size, rounded up, and the headroom
        self._backlog_records = 0
        self._shared_keys = 0  # that the client looked up in shared memory

    @property
    def is_drained(self) -> bool:
        """Whether the client closed the channel, and all answers and credit were sent."""
        return self.is_closing and not self.lookups and not self._unsent_count

    def silent_for_s(self, now: float) -> float:
        """How long the channel has had no lookup; 0 while it has one, or is closing."""
        is_used = self.lookups or self._unsent_count or self.is_closing
        return 0.0 if is_used else now - self._used_at_s

    def on_lookup(self, frame: Lookup, now: float) -> ServerLookup:
        """Check and charge a lookup.

        Raises ProtocolViolation (`bad_frame`, `seq_gap`, `credit_violation`; `unknown_channel`
        after CLOSE).
        """
        if not len(self.schema.key):
            raise bad_frame("LOOKUP on a channel without a key")
        keys = self._decoder.decode(frame.payload)
        cost = Grant(keys.num_rows, len(frame.payload))
        self._check(frame, cost)
        self._next_sequence += 1
        self.keys_total += cost.records
        self._at_client = self._at_client.minus(cost)
        recent = self._recent.plus(cost)
        if recent.records > _MEAN_RECORDS:
            recent = Grant(recent.records // 2, recent.bytes // 2)
        self._recent = recent
        # Granted bytes follow the size of sent records, to last as long as granted records.
        self._record_bytes = -(-recent.bytes // max(recent.records, 1)) + _HEADROOM_BYTES
        self._backlog_records = frame.backlog_records
        timeout_s = frame.timeout_ms / 1000
        lookup = self.lookups[frame.sequence] = ServerLookup(
            channel=self,
            sequence=frame.sequence,
            records=cost.records,
            deadline_s=now + timeout_s,
            timeout_s=timeout_s,
            event_time_ms=frame.event_time_ms,
            cost=cost,
            queued=keys,
            unanswered=cost.records,
        )
        return lookup

    def lend(self) -> Credit | None:
        """Floating credit to send for the reported backlog, if any."""
        # Unused credit, sent or not, is also for the backlog: lookups that were sent together
        # report the same backlog several times.
        at_hand = self._at_client.plus(self._unsent)
        backlog_bytes = self._backlog_records * self._record_bytes
        wanted = Grant(
            max(self._backlog_records - at_hand.records, 0), max(backlog_bytes - at_hand.bytes, 0)
        )
        lent = NOTHING if wanted == NOTHING else self._ledger.lend(self.id, wanted)
        return None if lent == NOTHING else self._to_send(lent)

    def on_answer(
        self, part: LookupPart, answer: Answer, *, answer_bytes: int, now: float
    ) -> Credit | None:
        """Learn from the answer of some records of a part; returns the credit to send."""
        part.unanswered -= answer.size
        if not part.unanswered:
            part.lookup.parts.discard(part)
        if answer.rows is None:
            self.costs.size.on_no_rows(answer.size)
        else:
            self.costs.size.on_rows(answer.size, answer_bytes)
        return self.end_records(part.lookup, answer.size, now)

    def end_records(self, lookup: ServerLookup, records: int, now: float) -> Credit | None:
        """The credit to send for some answered or cancelled records; None for nothing.

        Bytes return in proportion to the records; with the last record, the rest. It stays charged
        until `on_credit_sent`, which bounds the queue for a client that does not read. The last one
        is 0 if other channels need all of it; `is_drained` waits for it nevertheless.
        """
        self._used_at_s = now
        lookup.unanswered -= records
        cost, has_ended = lookup.cost, not lookup.unanswered
        if has_ended:
            del self.lookups[lookup.sequence]
        else:
            cost = Grant(records, cost.bytes * records // cost.records)
            lookup.cost = lookup.cost.minus(cost)
        taken = self._ledger.take_back(self.id, cost, record_bytes=self._record_bytes)
        back = cost.minus(taken)
        return self._to_send(back) if has_ended or back != NOTHING else None

    def on_credit_sent(self, credit: Credit) -> None:
        """A CREDIT frame of this channel was sent: the client may use it."""
        sent = Grant(credit.records, credit.bytes)
        self._unsent = self._unsent.minus(sent)
        self._unsent_count -= 1
        self._at_client = self._at_client.plus(sent)

    def on_cached(self, frame: Cached, now: float) -> None:
        """Count keys that the client looked up in shared memory."""
        keys = frame.hits + frame.missing + frame.defaults
        self._shared_keys += keys
        self.keys_total += keys
        self._used_at_s = now

    def is_new_reason(self, code: ErrorCode, reason: str) -> bool:
        """Whether the client does not know this reason yet; it counts as sent."""
        is_new = self._reasons.get(code, code.explanation) != reason
        if is_new:
            self._reasons[code] = reason
        return is_new

    def statistics(self) -> ChannelStatistics:
        """Levels now."""
        granted_records = self._ledger.granted(self.id).records
        return ChannelStatistics(
            connection=self.connection,
            channel=self.opened.channel,
            dimension=self.opened.dimension,
            origin=self.opened.origin,
            exclusive_records=self.share.records,
            floating_records=self._ledger.floating(self.id).records,
            credit_records=self._at_client.records,
            backlog_records=0 if self.is_closing else self._backlog_records,
            in_flight_records=granted_records - self._at_client.records,
            shared_keys=self._shared_keys,
            watermark_ms=self.watermark_ms,
            is_idle=self.is_idle,
        )

    def check_invariants(self) -> None:
        """For tests: sums match, and no credit is negative."""
        granted = self._at_client.plus(self._unsent)
        for sequence, lookup in self.lookups.items():
            granted = granted.plus(lookup.cost)
            submitted = sum(part.unanswered for part in lookup.parts)
            assert (lookup.sequence, lookup.unanswered) == (
                sequence,
                lookup.queued_records + submitted,
            )
            assert all(part.unanswered for part in lookup.parts)
        assert self._unsent_count or self._unsent == NOTHING
        assert granted == self._ledger.granted(self.id)
        assert min(self._at_client.records, self._at_client.bytes) >= 0

    def _check(self, frame: Lookup, cost: Grant) -> None:
        number = self.opened.channel
        if self.is_closing:
            detail = f"LOOKUP after CLOSE on {number}"
            raise ProtocolViolation(ErrorCode.UNKNOWN_CHANNEL, detail)
        if frame.sequence != self._next_sequence:
            detail = f"expected {self._next_sequence}, got {frame.sequence}"
            raise ProtocolViolation(ErrorCode.SEQUENCE_GAP, detail)
        if cost.records > self._at_client.records or cost.bytes > self._at_client.bytes:
            detail = f"{cost.records} records of {cost.bytes} bytes on channel {number}"
            raise ProtocolViolation(ErrorCode.CREDIT_VIOLATION, detail)

    def _to_send(self, grant: Grant) -> Credit:
        self._unsent = self._unsent.plus(grant)
        self._unsent_count += 1
        return Credit(self.opened.channel, grant.records, grant.bytes)

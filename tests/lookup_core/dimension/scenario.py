"""One dimension driven by plain values, so that a scenario reads as a list of events.

Checks the invariants after every event; the expected answers are in the tests.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges, TableChange
from lookup_core.dimension.default_row import default_row
from lookup_core.dimension.dimension_events import (
    BatchId,
    ChannelId,
    Effects,
    FetchedRows,
    LookupId,
    LookupRequest,
    UnfitRows,
)
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.explanation import Explanation, explain
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.freshness.server_identity import UNKNOWN_SERVER
from lookup_core.freshness.table_snapshot import IdRelation, TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.lookup_options import LookupOptions
from lookup_core.protection.circuit_breaker import BreakerState
from lookup_core.settings import (
    BatchSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    OnMissingSettings,
    RetrySettings,
)
from lookup_core.statistics import DimensionStatistics, InvalidationOrigin

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
TTL_S = 10.0
NEGATIVE_TTL_S = 5.0
TIMEOUT_S = 2.0
RETRY_S = 1.0
MISSING_RETRY_S = 2.0
FAULTY = "faulty"  # a key that the key's type cannot hold

AWAY = ErrorCode.BACKEND_UNAVAILABLE

Key = int | str | None
Words = dict[int, str]  # {position: outcome, and the name or the error code}
Name = str | None  # None is NULL
Names = Mapping[int, str | Sequence[Name]]  # {key: the name of its row, or of each of its rows}


@dataclass(frozen=True, slots=True)
class Result:
    """The effects of an event: answers by lookup, completed lookups, queries to cancel."""

    answers: dict[int, Words] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)


NOTHING = Result()


def ended(lookup: int, *words: str) -> Result:
    """A lookup is complete with the answers of all of its keys."""
    return Result({lookup: dict(enumerate(words))}, ended=[lookup])


@dataclass(frozen=True, slots=True)
class Order:
    """A query to send."""

    batch: int
    keys: list[int]
    attempt: int = 1


def settings(
    *,
    max_keys: int = 500,
    linger_s: float = 0.0,
    max_in_flight: int = 8,
    max_queries_per_s: int | None = None,
    retries: int = 0,
    missing_retries: int = 0,
    mode: CacheMode = CacheMode.PARTIAL,
    max_waiting_keys: int = 1000,
    revalidate_s: float = 0.0,
    if_error_s: float = 0.0,
    default: Mapping[str, object] | None = None,
    wait_s: float = 0.0,
) -> DimensionSettings:
    """The times are the constants above; nothing is retried unless the test says so."""
    cache = CacheSettings(
        mode=mode,
        ttl_s=TTL_S,
        negative_ttl_s=NEGATIVE_TTL_S,
        stale_while_revalidate_s=revalidate_s,
        stale_if_error_s=if_error_s,
    )
    on_missing = OnMissingSettings(max_retries=missing_retries, delay_s=MISSING_RETRY_S)
    return DimensionSettings(
        "customers",
        cache=cache,
        batch=BatchSettings(max_keys, linger_s, max_in_flight, max_queries_per_s),
        retry=RetrySettings(max_retries=retries, initial_s=RETRY_S, on_missing=on_missing),
        default=default,
        timeout_s=TIMEOUT_S,
        wait_for_dimension_s=wait_s,
        max_waiting_keys=max_waiting_keys,
    )


def columns_of(*keys: Key) -> pa.RecordBatch:
    """The key columns of a request or a change."""
    return pa.record_batch([pa.array(keys, pa.int64())], SCHEMA.key)


def typed(*keys: Key) -> TypedKeys:
    """The keys of one request; None is NULL."""
    faults = {at: ErrorCode.TYPE for at, key in enumerate(keys) if key == FAULTY}
    nulls = [at for at, key in enumerate(keys) if key is None]
    columns = columns_of(*(None if key == FAULTY else key for key in keys))
    return TypedKeys(columns, np.array(nulls, np.int32), faults)


def request(
    lookup: int,
    *keys: Key,
    columns: tuple[str, ...] = ("name",),
    deadline: float = 100.0,
    channel: int = 0,
    event_time_ms: int | None = None,
    options: LookupOptions | None = None,
) -> LookupRequest:
    """A lookup of these keys."""
    ids = LookupId(lookup), ChannelId(channel)
    return LookupRequest(*ids, typed(*keys), columns, deadline, event_time_ms, options)


def retrying(
    retries: int, delay_s: float = MISSING_RETRY_S, *, retry_if: str | None = None
) -> LookupOptions:
    """The options of a channel with retries for missing keys."""
    return LookupOptions(
        max_retries=retries, retry_delay_ms=round(delay_s * 1000), retry_if=retry_if
    )


def max_age(seconds: float) -> LookupOptions:
    """The options of a channel with a maximal age."""
    return LookupOptions(max_age_ms=round(seconds * 1000))


def row_changes(names: Mapping[int, str | None], *, by: int = UNKNOWN_TRANSACTION) -> RowChanges:
    """Changes of keys by a transaction: the new name of the row, or None if it is not given."""
    return RowChanges(
        keys=columns_of(*names),
        has_row=np.array([name is not None for name in names.values()], np.bool_),
        is_gone=np.zeros(len(names), np.bool_),
        rows=pa.record_batch([pa.array(list(names.values()), pa.utf8())], SCHEMA.columns),
        transaction_ids=np.full(len(names), by % 2**32, np.uint32),
    )


def words_of(answers: Sequence[Answer]) -> Words:
    """Answers in words; asserts that no position is answered twice."""
    words: Words = {}
    for answer in answers:
        names = [None] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
        for at, outcome, name in zip(
            answer.positions.tolist(), answer.outcomes.tolist(), names, strict=True
        ):
            assert at not in words
            word = name if name is not None else answer.errors.get(at, "")
            words[at] = f"{Outcome(outcome).label} {word}".strip()
    return words


class Scenario:
    """One dimension; the test moves `now`. Ids of changes and of reads may be compared."""

    def __init__(self, chosen: DimensionSettings | None = None) -> None:
        self.now = 0.0
        chosen = chosen or settings()
        default = None
        if chosen.default is not None:
            default = default_row(chosen.default, SCHEMA.columns)
        self.state = DimensionState(chosen, SCHEMA, default=default)
        self.state.fence.relate(IdRelation.COMPARABLE)
        self.server = UNKNOWN_SERVER  # that returns rows
        self.ages: dict[tuple[int, int], float] = {}  # {(lookup, position): seconds}
        self._keys: dict[int, list[int]] = {}  # {batch: its keys}

    @property
    def statistics(self) -> DimensionStatistics:
        """Levels and totals."""
        return self.state.statistics()

    @property
    def breaker(self) -> BreakerState:
        """The state of the circuit breaker."""
        return self.statistics.breaker_state

    @property
    def outcomes(self) -> dict[str, int]:
        """How many keys have had each outcome; zeros are left out."""
        counts = self.statistics.outcomes.items()
        return {outcome.label: count for outcome, count in counts if count}

    @property
    def next_deadline(self) -> float | None:
        """When the dimension has something to do without another event."""
        dues = (self.state.next_deadline(), self.state.next_query_at())
        return min((due for due in dues if due is not None), default=None)

    def look_up(
        self,
        lookup: int,
        *keys: Key,
        deadline: float = 100.0,
        channel: int = 0,
        options: LookupOptions | None = None,
        at_ms: int | None = None,
    ) -> Words:
        """Submit a lookup of records of this event time; returns the immediate answers."""
        submitted = request(
            lookup,
            *keys,
            deadline=deadline,
            channel=channel,
            options=options,
            event_time_ms=at_ms,
        )
        answers = self.state.submit(submitted, self.now).answers
        self.state.check_invariants()
        self._note_ages(lookup, answers)
        return words_of(answers)

    def send(self) -> Order | None:
        """The query that is to be sent now."""
        order = self.state.next_order(self.now)
        self.state.check_invariants()
        if order is None:
            return None
        assert order.timeout_s == TIMEOUT_S
        self._keys[order.id] = order.keys.column(0).to_pylist()
        return Order(order.id, self._keys[order.id], order.tries)

    def send_all(self) -> list[list[int]]:
        """The keys of all queries that are to be sent now."""
        return [order.keys for order in iter(self.send, None)]

    def query(
        self,
        lookup: int,
        *keys: int,
        deadline: float = 100.0,
        options: LookupOptions | None = None,
    ) -> int:
        """Submit a lookup and send a query; returns its number."""
        self.look_up(lookup, *keys, deadline=deadline, options=options)
        return self.resend()

    def resend(self) -> int:
        """Send the query that is due; returns its number."""
        order = self.send()
        assert order is not None
        return order.batch

    def cache(self, names: Names | Mapping[int, str]) -> None:
        """Put rows into the cache: a name by key."""
        self.land(self.query(1000, *names), names)

    def land(
        self,
        batch: int,
        names: Names | Mapping[int, str] | None = None,
        *,
        snapshot: TableSnapshot | None = None,
        read_at: float | None = None,
        unfit: Mapping[int, ErrorCode] | None = None,
        deferred: Sequence[int] = (),
    ) -> Result:
        """A query returns its rows, what its read saw, when that was, and other keys."""
        found = [
            (ordinal, name)
            for ordinal, key in enumerate(self._keys[batch])
            for name in as_list((names or {}).get(key, []))
        ]
        fetched = FetchedRows(
            np.array([ordinal for ordinal, _ in found], np.int32),
            pa.record_batch([pa.array([n for _, n in found], pa.utf8())], SCHEMA.columns),
            server=self.server,
            snapshot=snapshot,
            read_at=read_at,
            unfit=[
                UnfitRows(code, self._ordinals(batch, [key]), "column name")
                for key, code in (unfit or {}).items()
            ],
            deferred=self._ordinals(batch, deferred),
        )
        return self._result(self.state.on_rows(BatchId(batch), fetched, now=self.now))

    def fail(self, batch: int, code: ErrorCode = AWAY, *, jitter: float = 1.0) -> Result:
        """A query fails; with this jitter its retry waits for the whole delay."""
        id_, state = BatchId(batch), self.state
        return self._result(state.on_failure(id_, code=code, now=self.now, jitter=jitter))

    def leave(self, lookup: int) -> Result:
        """The caller of a lookup gives up."""
        return self._result(self.state.leave(LookupId(lookup)))

    def abandon(self, code: ErrorCode) -> Result:
        """The schema of the dimension is no longer valid."""
        return self._result(self.state.abandon(code, self.now))

    def expire(self) -> Result:
        """End the lookups whose deadline has passed."""
        return self._result(self.state.expire(self.now))

    def invalidate(self, *keys: Key) -> int:
        """An administrator invalidates keys, or all without keys."""
        count = self.state.invalidate(typed(*keys) if keys else None, InvalidationOrigin.ADMIN)
        self.state.check_invariants()
        return count

    def change(self, *keys: int, by: int = UNKNOWN_TRANSACTION) -> Result:
        """A feed reports that rows changed, not how; any rows without keys."""
        names: dict[int, str | None] = dict.fromkeys(keys)
        change = row_changes(names, by=by) if keys else TableChange("truncated", by % 2**32)
        return self.apply(change)

    def apply(self, *changes: RowChanges | TableChange) -> Result:
        """A feed reports changes in this order."""
        return self._result(self.state.on_changes(changes, InvalidationOrigin.CHANGELOG, self.now))

    def advance(self, watermark_ms: int) -> Result:
        """The feed has reported all changes before this event time."""
        return self._result(self.state.on_watermark(watermark_ms, self.now))

    def trust(self, *, is_trusted: bool, feed: FeedState = FeedState.LIVE) -> None:
        """The feed is live, or it is stalled, or in another state without trust."""
        self.state.local.trust(until=math.inf if is_trusted else -math.inf, feed=feed)

    def explain(self, *keys: Key) -> list[Explanation]:
        """The source of the answer to each key."""
        return explain(self.state, typed(*keys), self.now)

    def open_breaker(self) -> None:
        """Let the lookups 100 to 102 of the keys of these numbers fail."""
        for number in range(100, 103):
            self.fail(self.query(number, number, deadline=self.now + 3.0))
        assert self.breaker is BreakerState.OPEN

    def _result(self, effects: Effects) -> Result:
        self.state.check_invariants()
        answers: dict[int, list[Answer]] = {}
        for delivery in effects.deliveries:
            answers.setdefault(delivery.lookup_id, []).append(delivery.answer)
            self._note_ages(delivery.lookup_id, [delivery.answer])
        return Result(
            {lookup: words_of(parts) for lookup, parts in answers.items()},
            [delivery.lookup_id for delivery in effects.deliveries if delivery.is_last],
            list(effects.cancelled),
        )

    def _ordinals(self, batch: int, keys: Sequence[int]) -> npt.NDArray[np.int32]:
        return np.array([self._keys[batch].index(key) for key in keys], np.int32)

    def _note_ages(self, lookup: int, answers: Sequence[Answer]) -> None:
        for answer in answers:
            places = [(lookup, position) for position in answer.positions.tolist()]
            self.ages |= dict(zip(places, (answer.ages_ms / 1000).tolist(), strict=True))


def as_list(names: str | Sequence[Name]) -> Sequence[Name]:
    """The names of the rows of a key."""
    return [names] if isinstance(names, str) else names

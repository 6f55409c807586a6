"""A dimension's state driven by plain values, so that a scenario reads as a list of events.

Checks the invariants after every step; what has to come out is the tests' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from lookup_core.answer import Answer, Outcome
from lookup_core.changelog.change_decoder import UNKNOWN_TRANSACTION, RowChanges, TableChange
from lookup_core.dimension.batcher import ChannelId
from lookup_core.dimension.dimension_events import Effects, LookupRequest
from lookup_core.dimension.dimension_state import DimensionState
from lookup_core.dimension.explanation import Explanation
from lookup_core.dimension.flight_table import BatchId, LookupId
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.table_snapshot import TableSnapshot
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.settings import (
    BatchSettings,
    CacheMode,
    CacheSettings,
    DimensionSettings,
    RetrySettings,
)
from lookup_core.statistics import InvalidationOrigin

SCHEMA = DimensionSchema(pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8()}))
FAULTY = "faulty"  # stands for a key that the key's type cannot hold

Key = int | str | None
Told = dict[int, str]  # {position: outcome, and the name or the error code}


@dataclass(frozen=True, slots=True)
class Seen:
    """What came out of an event: answers by lookup, who is through, which queries to cancel."""

    answers: dict[int, Told] = field(default_factory=dict)
    ended: list[int] = field(default_factory=list)
    cancelled: list[int] = field(default_factory=list)


NOTHING = Seen()


@dataclass(frozen=True, slots=True)
class Order:
    """A query that is to be sent."""

    batch: int
    keys: list[int]


def settings(
    *,
    batch: BatchSettings | None = None,
    retry: RetrySettings | None = None,
    mode: CacheMode = CacheMode.PARTIAL,
    max_waiting_keys: int = 1000,
    stale_while_revalidate_s: float = 0.0,
    stale_if_error_s: float = 0.0,
    default: Mapping[str, object] | None = None,
) -> DimensionSettings:
    """Rows live 10 s, absences 5 s; a query may take 2 s; a retry comes after 1 s."""
    cache = CacheSettings(
        mode=mode,
        ttl_s=10.0,
        negative_ttl_s=5.0,
        stale_while_revalidate_s=stale_while_revalidate_s,
        stale_if_error_s=stale_if_error_s,
    )
    return DimensionSettings(
        "customers",
        cache=cache,
        batch=batch or BatchSettings(),
        retry=retry or RetrySettings(max_retries=0, initial_s=1.0),
        default=default,
        timeout_s=2.0,
        max_waiting_keys=max_waiting_keys,
    )


def typed(*keys: Key) -> TypedKeys:
    """Keys of one request; None is NULL."""
    faults = {at: ErrorCode.TYPE for at, key in enumerate(keys) if key == FAULTY}
    values = [None if key == FAULTY else key for key in keys]
    nulls = [at for at, key in enumerate(keys) if key is None]
    columns = pa.record_batch([pa.array(values, pa.int64())], SCHEMA.key)
    return TypedKeys(columns, np.array(nulls, np.int32), faults)


def row_changes(*keys: int, by: int = UNKNOWN_TRANSACTION) -> RowChanges:
    """That these keys have changed, and not how."""
    nobody = np.zeros(len(keys), np.bool_)
    rows = pa.record_batch([pa.nulls(len(keys), pa.utf8())], SCHEMA.columns)
    ids = np.full(len(keys), by % 2**32, np.uint32)
    return RowChanges(typed(*keys).columns, nobody, nobody, rows, ids)


def told(answers: Sequence[Answer]) -> Told:
    """Answers in words; asserts that no position is answered twice."""
    words: Told = {}
    for answer in answers:
        names = [None] * answer.size if answer.rows is None else answer.rows["name"].to_pylist()
        for at, outcome, name in zip(
            answer.positions.tolist(), answer.outcomes.tolist(), names, strict=True
        ):
            assert at not in words
            word = name if name is not None else answer.errors.get(at, "")
            words[at] = f"{Outcome(outcome).label} {word}".strip()
    return words


class DimensionScript:
    """One dimension; `now` is moved by the test."""

    def __init__(
        self,
        chosen: DimensionSettings | None = None,
        *,
        state_class: type[DimensionState] = DimensionState,
    ) -> None:
        self.now = 0.0
        self.state = state_class(chosen or settings(), SCHEMA)
        # {(lookup, position): age in seconds} of what was told of rows and absences
        self.ages: dict[tuple[int, int], float] = {}
        self._keys: dict[int, list[int]] = {}  # {batch: its keys}

    def submit(self, lookup: int, *keys: Key, deadline: float = 100.0, channel: int = 0) -> Told:
        """A lookup comes; returns what is answered at once."""
        request = LookupRequest(
            LookupId(lookup), ChannelId(channel), typed(*keys), ("name",), deadline
        )
        answers = self.state.submit(request, self.now)
        self.state.check_invariants()
        self._note_ages(lookup, answers)
        return told(answers)

    def keep(self, names: Mapping[int, str]) -> None:
        """Bring rows into the cache: a name by key."""
        self.submit(1000, *names)
        order = self.order()
        assert order is not None
        self.land(order.batch, names)

    def order(self) -> Order | None:
        """The query that is to be sent now."""
        order = self.state.next_order(self.now)
        self.state.check_invariants()
        if order is None:
            return None
        assert order.timeout_s == 2.0
        self._keys[order.id] = order.keys.column(0).to_pylist()
        return Order(order.id, self._keys[order.id])

    def land(
        self,
        batch: int,
        names: Mapping[int, str] | Mapping[int, str | list[str]],
        *,
        snapshot: TableSnapshot | None = None,
    ) -> Seen:
        """The rows of a query come: a name by key, or several; and what their read saw."""
        found = [
            (ordinal, name)
            for ordinal, key in enumerate(self._keys[batch])
            for name in _as_list(names.get(key, []))
        ]
        effects = self.state.on_rows(
            BatchId(batch),
            ordinals=np.array([ordinal for ordinal, _ in found], np.int32),
            rows=pa.record_batch([pa.array([n for _, n in found], pa.utf8())], SCHEMA.columns),
            snapshot=snapshot,
            now=self.now,
        )
        return self._seen(effects)

    def fail(
        self, batch: int, code: ErrorCode = ErrorCode.BACKEND_UNAVAILABLE, *, jitter: float = 1.0
    ) -> Seen:
        """A query fails; with this jitter its retry waits for the whole delay."""
        return self._seen(
            self.state.on_failure(BatchId(batch), code=code, now=self.now, jitter=jitter)
        )

    def leave(self, lookup: int) -> Seen:
        """Nobody waits for the lookup any more."""
        return self._seen(self.state.leave(LookupId(lookup)))

    def abandon(self, code: ErrorCode) -> Seen:
        """Nothing can be answered any more."""
        return self._seen(self.state.abandon(code))

    def expire(self) -> Seen:
        """The clock is looked at."""
        return self._seen(self.state.expire(self.now))

    def invalidate(self, *keys: Key) -> int:
        """Keys are said to have changed; all without keys."""
        count = self.state.invalidate(typed(*keys) if keys else None, InvalidationOrigin.ADMIN)
        self.state.check_invariants()
        return count

    def change(self, *keys: int, by: int = UNKNOWN_TRANSACTION) -> int:
        """Changes of keys are told, of any keys without some; `by` a transaction."""
        change = row_changes(*keys, by=by) if keys else TableChange("truncated", by % 2**32)
        count = self.state.changes.on_changes([change], InvalidationOrigin.CHANGELOG, self.now)
        self.state.check_invariants()
        return count

    def trust(self, *, is_trusted: bool) -> None:
        """The feed is said to live, or not to."""
        self.state.changes.trust(is_trusted=is_trusted)

    def explain(self, *keys: Key) -> list[Explanation]:
        """Where the answers would come from."""
        return self.state.explain(typed(*keys), self.now)

    def _seen(self, effects: Effects) -> Seen:
        self.state.check_invariants()
        answers: dict[int, list[Answer]] = {}
        for delivery in effects.deliveries:
            answers.setdefault(delivery.lookup_id, []).append(delivery.answer)
            self._note_ages(delivery.lookup_id, [delivery.answer])
        return Seen(
            {lookup: told(parts) for lookup, parts in answers.items()},
            [delivery.lookup_id for delivery in effects.deliveries if delivery.is_last],
            list(effects.cancelled),
        )

    def _note_ages(self, lookup: int, answers: Sequence[Answer]) -> None:
        for answer in answers:
            places = [(lookup, position) for position in answer.positions.tolist()]
            self.ages |= dict(zip(places, (answer.ages_ms / 1000).tolist(), strict=True))


def _as_list(names: str | list[str]) -> list[str]:
    return [names] if isinstance(names, str) else names

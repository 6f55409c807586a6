"""Local resolver: answers from cache, quarantine and default row, without a query.

Stale rows are served as in RFC 5861: `stale-while-revalidate` answers at once and refreshes in the
background, `stale-if-error` answers if the backend fails. Negative entries are never served stale,
so that an outage does not hide a row that has been inserted since.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lookup_core.answer import Answer, Outcome, ages_ms, rowless_answer, with_default
from lookup_core.cache.cache_memory import CacheMemory, OwnMemory
from lookup_core.cache.dimension_cache import DimensionCache, Hit, Probe
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension.dimension_events import (
    NO_ROW,
    Delivery,
    FetchedRows,
    KeyGroup,
    LookupRequest,
    QueryResult,
    Read,
)
from lookup_core.dimension.waiting_lookups import Served, WaitingLookup
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.freshness.feed_health import FeedState
from lookup_core.keys.canonical_keys import (
    CanonicalKeys,
    Hashes,
    KeyId,
    SingleKeys,
    canonical_keys,
    keys_of_ids,
)
from lookup_core.keys.restored_keys import restored_keys
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.lookup_options import LookupOptions
from lookup_core.protection.backend_guard import Quarantine
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.table.full_table import FullTable

_MAX_ABSENT_KEYS = 64

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class LocalAnswers:
    """The immediate answers to a lookup, and the keys that need a query."""

    answers: list[Answer]
    unknown: KeyGroup
    outdated: KeyGroup  # answered with a stale row, to be refreshed


_NO_KEYS = KeyGroup(np.zeros(0, np.int32), CanonicalKeys(np.zeros(0, np.uint64), None))


class LocalResolver:
    """The cache, quarantine and default row of one dimension; `now` is monotonic seconds."""

    def __init__(
        self,
        settings: DimensionSettings,
        schema: DimensionSchema,
        *,
        seed: int,
        default: pa.RecordBatch | None = None,
        memory: CacheMemory | None = None,
    ) -> None:
        """`default` is the row of missing keys, in the columns of the schema."""
        self._settings = settings.cache
        self._seed = seed
        self.schema = schema
        cache_of = FullTable if settings.cache.mode is CacheMode.FULL else RowCache
        self.cache: DimensionCache = cache_of(schema, settings.cache, memory)
        self._memory = memory or OwnMemory()
        self._trusted_until = math.inf  # later, cached rows may have changed unnoticed
        self._feed = FeedState.LIVE
        self.single_keys = SingleKeyReader(self, SingleKeys(schema, seed=seed))
        self.quarantine = Quarantine()
        # Those of the last lookup that found some in a whole table; at most _MAX_ABSENT_KEYS.
        self.absent = self.canonical(pa.RecordBatch.from_pylist([], schema=schema.key))
        self._default = default

    def trust(self, *, until: float, feed: FeedState = FeedState.LIVE) -> None:
        """Set until when all changes are reported, by the feed's state; for ever at first.

        Without trust no row is cached, and cached rows are served on errors only. With trust
        restored, they are served again.
        """
        self._trusted_until, self._feed = until, feed
        self._memory.allow_reads(until=until)

    def is_trusted(self, now: float) -> bool:
        """Whether cached rows may be served as current."""
        return now < self._trusted_until

    def distrusted_feed(self, now: float) -> FeedState | None:
        """The feed's state, if it is why cached rows may not be served as current."""
        if self.is_trusted(now):
            return None
        return FeedState.SILENT if self._feed is FeedState.LIVE else self._feed

    def canonical(
        self, columns: pa.RecordBatch, positions: Positions | None = None
    ) -> CanonicalKeys:
        """The keys of a batch, or those at these positions, in canonical form."""
        if positions is not None and len(positions) < columns.num_rows:
            columns = columns.take(pa.array(positions))
        return canonical_keys(columns, seed=self._seed)

    def columns_of(self, keys: CanonicalKeys) -> pa.RecordBatch:
        """The columns of canonical keys."""
        return restored_keys(keys, self.schema.key, seed=self._seed)

    def look_up(self, request: LookupRequest, now: float, *, is_backend_down: bool) -> LocalAnswers:
        """Resolve a lookup; counts as a visit of the cached rows.

        While the backend is down, rows that may be served on errors are served at once.
        """
        positions = request.keys.valid_positions()
        keys = self.canonical(request.keys.columns, positions)
        probe = self.cache.probe(keys, now)
        if now >= self._trusted_until:
            probe = _distrusted(probe)
        if request.options is not None:
            probe = self._within(request.options, probe)
        if np.count_nonzero(probe.is_row) == request.keys.size:  # the usual case: all are hits
            return LocalAnswers([self._all_rows(probe, request.columns)], _NO_KEYS, _NO_KEYS)
        if self.cache.is_whole and probe.is_missing.any():
            self.absent = keys.take(
                np.flatnonzero(probe.is_missing)[:_MAX_ABSENT_KEYS].astype(np.int32)
            )
        is_outdated = self.is_revalidated(probe, now)
        is_served = is_outdated | self._may_replace_error(probe) if is_backend_down else is_outdated
        is_unknown = ~(probe.is_row | probe.is_missing | is_served)
        found = np.flatnonzero(probe.is_row | is_served)
        answers = [*_invalid_answers(request.keys), *_negative_answers(probe, positions)]
        if found.size:
            answers.append(self._cached_rows(probe, found, positions, columns=request.columns))
        unknown = _group(keys, positions, is_unknown)
        outdated = _group(keys, positions, is_outdated)
        if len(self.quarantine):
            refused, unknown = self._without_refused(unknown, now)
            answers += refused
        return LocalAnswers(self._with_default(answers, request.columns), unknown, outdated)

    def fetched(self, result: QueryResult, served: Served) -> list[Delivery]:
        """The answers to one lookup from a query's result."""
        lookup = served.lookup
        answers = [*result.answers(served.positions, served.ordinals, lookup.columns)]
        return [Delivery(lookup.id, a) for a in self._with_default(answers, lookup.columns)]

    def failed(
        self,
        lookup: WaitingLookup,
        positions: Positions,
        key_ids: Sequence[KeyId],
        *,
        code: ErrorCode,
        now: float,
    ) -> Iterator[Delivery]:
        """The answers to failed keys of one lookup: stale rows if allowed, else the error.

        Key i is at `positions[i]` of the lookup. After a schema change, and without the right to
        read the table, no stale row is served.
        """
        if self._settings.stale_if_error_s > 0 and code.is_retryable:
            keys = keys_of_ids(key_ids, seed=self._seed)
            probe = self._peek(keys, now)
            # Fresh rows too: another query may have brought them.
            is_served = self._may_replace_error(probe) | probe.is_row
            served = np.flatnonzero(is_served & (probe.ages_s < now - lookup.read_after))
            if served.size:
                stale = self._cached_rows(probe, served, positions, columns=lookup.columns)
                yield Delivery(lookup.id, stale)
                positions = np.delete(positions, served)
        if positions.size:
            outcome = Outcome.TIMEOUT if code is ErrorCode.TIMEOUT else Outcome.ERROR
            yield Delivery(lookup.id, rowless_answer(positions, outcome, error=code))

    def keep(self, read: Read, *, may_keep: Mask, is_last_try: bool, now: float) -> None:
        """Cache a query's result where no change has overtaken it."""
        if self._settings.mode is CacheMode.NONE:
            return
        result = read.result
        # Negative entries after the last attempt only: until then the row may come.
        has_entry = result.row_of >= (NO_ROW if is_last_try else 0)
        kept = np.flatnonzero(may_keep & has_entry).astype(np.int32)
        row_of = result.row_of[kept]
        rows = result.selected(row_of[row_of >= 0])
        keys = self.canonical(read.columns, kept)
        # Rows that the backend had read before it was queried are older than the query.
        read_at = min(read.sent_at, now - result.age_ms / 1000)
        self.cache.fill(keys, row_of >= 0, rows=rows, read_at=read_at, now=now)
        failed = np.flatnonzero(result.row_of < NO_ROW).astype(np.int32)
        if failed.size:  # the table has another row now: the former must not be served as stale
            self.cache.invalidate(self.canonical(read.columns, failed))

    def known_rows(self, keys: pa.RecordBatch, now: float) -> FetchedRows | None:
        """The rows of distinct keys from a loaded table; None unless all keys are known."""
        if not self.cache.is_whole or not self.is_trusted(now):
            return None
        probe = self.cache.probe(self.canonical(keys), now)
        if not (probe.is_row | probe.is_missing).all():
            return None
        at = np.flatnonzero(probe.is_row).astype(np.int32)
        gathered = self.cache.rows(probe.slots[at], self.schema.columns.names)
        oldest_s = float(probe.ages_s.max()) if probe.ages_s.size else 0.0
        return FetchedRows(at[gathered.order], gathered.rows, read_at=now - oldest_s)

    def is_revalidated(self, probe: Probe, now: float) -> Mask:
        """Which keys of a probe are answered with a stale row, and refreshed."""
        if not self.is_trusted(now):
            return np.zeros_like(probe.is_stale)
        return _is_stale_within(probe, self._settings.stale_while_revalidate_s)

    def invalidate(self, keys: TypedKeys | None) -> tuple[Hashes | None, int]:
        """Remove keys, or all for None; their hashes (None for all), and the entries removed."""
        if keys is None:
            self.quarantine.clear()
            return None, self.cache.clear()
        canonical = self.canonical(keys.columns, keys.valid_positions())
        self.quarantine.remove(canonical.ids())
        return canonical.hashes, self.cache.invalidate(canonical)

    def peek(self, keys: TypedKeys, now: float) -> tuple[Positions, CanonicalKeys, Probe]:
        """The cache's entries for the valid keys; counts as no visit."""
        positions = keys.valid_positions()
        canonical = self.canonical(keys.columns, positions)
        return positions, canonical, self._peek(canonical, now)

    def _peek(self, keys: CanonicalKeys, now: float) -> Probe:
        """The cache's entries for the keys, as far as they are trusted; counts as no visit."""
        probe = self.cache.peek(keys, now)
        return probe if self.is_trusted(now) else _distrusted(probe)

    def _within(self, options: LookupOptions, probe: Probe) -> Probe:
        """The probe without entries that a channel with these options has read again."""
        is_young = probe.ages_s < options.max_age_s
        is_row, is_stale = probe.is_row & is_young, probe.is_stale & is_young
        is_missing = probe.is_missing & is_young
        if options.max_retries:  # the entry tells nothing of attempts after this lookup
            is_missing = np.zeros_like(is_missing)
        if options.retry_if is not None:
            found = np.flatnonzero(is_row | is_stale)
            gathered = self.cache.rows(probe.slots[found], [options.retry_if])
            is_null = pc.is_null(gathered.rows.column(0)).to_numpy(zero_copy_only=False)
            null = found[gathered.order][is_null]
            is_row[null] = is_stale[null] = False
        return replace(probe, is_row=is_row, is_missing=is_missing, is_stale=is_stale)

    def _cached_rows(
        self,
        probe: Probe,
        found: npt.NDArray[np.intp],
        positions: Positions,
        *,
        columns: Sequence[str],
    ) -> Answer:
        """The rows of these keys of the probe, fresh or stale; key i is at `positions[i]`."""
        gathered = self.cache.rows(probe.slots[found], columns)
        found = found[gathered.order]
        outcomes = np.where(probe.is_row[found], Outcome.HIT, Outcome.STALE).astype(np.uint8)
        return Answer(positions[found], outcomes, ages_ms(probe.ages_s[found]), gathered.rows)

    def _all_rows(self, probe: Probe, columns: Sequence[str]) -> Answer:
        """The rows of all keys of the probe, which are fresh."""
        gathered = self.cache.rows(probe.slots, columns)
        outcomes = np.zeros(len(probe.slots), np.uint8)  # HIT
        ages = ages_ms(probe.ages_s[gathered.order])
        return Answer(gathered.order.astype(np.int32), outcomes, ages, gathered.rows)

    def _may_replace_error(self, probe: Probe) -> Mask:
        return _is_stale_within(probe, self._settings.stale_if_error_s)

    def _without_refused(self, group: KeyGroup, now: float) -> tuple[list[Answer], KeyGroup]:
        codes = self.quarantine.codes(group.keys.ids(), now)
        is_refused = np.array([code is not None for code in codes], np.bool_)
        if not is_refused.any():
            return [], group
        refused = group.positions[is_refused]
        errors = dict(zip(refused.tolist(), filter(None, codes), strict=True))
        answer = replace(rowless_answer(refused, Outcome.ERROR), errors=errors)
        return [answer], _group(group.keys, group.positions, ~is_refused)

    def _with_default(self, answers: list[Answer], columns: Sequence[str]) -> list[Answer]:
        if self._default is None:
            return answers
        row = self._default.select(columns)
        return [with_default(answer, row) for answer in answers]


class SingleKeyReader:
    """Reads the cached row of one key: ten times as fast as a lookup of one key."""

    def __init__(self, resolver: LocalResolver, keys: SingleKeys) -> None:
        self._resolver = resolver
        self._keys = keys
        self.hits = 0

    def hit(self, value: object, now: float) -> Hit | None:
        """The fresh row of the key with this value; None if a lookup is needed."""
        key = self._keys.of(value)
        if key is None or not self._resolver.is_trusted(now):
            return None
        hit = self._resolver.cache.hit(key, now)
        if hit is not None:
            self.hits += 1
        return hit


def _distrusted(probe: Probe) -> Probe:
    """The probe without trust: all rows count as stale, and negative entries as unknown."""
    nothing = np.zeros_like(probe.is_row)
    is_stale = probe.is_stale | probe.is_row
    ttl_s = np.where(np.isinf(probe.ttl_s), 0.0, probe.ttl_s)  # rows that do not expire
    return replace(probe, is_row=nothing, is_missing=nothing, is_stale=is_stale, ttl_s=ttl_s)


def _invalid_answers(keys: TypedKeys) -> Iterator[Answer]:
    """The answers to the other keys: NULLs are missing, invalid keys are errors."""
    if len(keys.nulls):
        yield rowless_answer(keys.nulls, Outcome.MISSING)
    if keys.faults:
        positions = np.array(list(keys.faults), np.int32)
        yield replace(rowless_answer(positions, Outcome.ERROR), errors=dict(keys.faults))


def _negative_answers(probe: Probe, positions: Positions) -> Iterator[Answer]:
    if (missing := np.flatnonzero(probe.is_missing)).size:
        answer = rowless_answer(positions[missing], Outcome.MISSING)
        yield replace(answer, ages_ms=ages_ms(probe.ages_s[missing]))


def _group(keys: CanonicalKeys, positions: Positions, is_in: Mask) -> KeyGroup:
    if not is_in.any():  # the usual case: all keys are hits
        return _NO_KEYS
    chosen = np.flatnonzero(is_in).astype(np.int32)
    return KeyGroup(positions[chosen], keys.take(chosen))


def _is_stale_within(probe: Probe, beyond_s: float) -> Mask:
    if not beyond_s:  # without trust a row may count as stale before its time to live is over
        return np.zeros_like(probe.is_stale)
    return probe.is_stale & (probe.ages_s < probe.ttl_s + beyond_s)

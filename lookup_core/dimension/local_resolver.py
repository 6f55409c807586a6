"""Local resolver: answers without a query, from cache, quarantine and default row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.cache.cached_answers import cached_answers
from lookup_core.cache.row_cache import Bookmark, Hit, Probe, RowCache
from lookup_core.changelog.change_decoder import RowChanges
from lookup_core.dimension.default_row import default_row
from lookup_core.dimension.dimension_events import LookupRequest
from lookup_core.dimension.query_results import SEVERAL_ROWS, QueryResult
from lookup_core.dimension.query_table import Query
from lookup_core.dimension.stale_rows import StaleRows, all_stale
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import (
    CanonicalKeys,
    Hashes,
    KeyId,
    canonical_keys,
    keys_of_ids,
)
from lookup_core.keys.single_keys import SingleKeys
from lookup_core.keys.typed_keys import TypedKeys
from lookup_core.protection.backend_guard import Quarantine
from lookup_core.settings import CacheMode, DimensionSettings
from lookup_core.table.full_table import FullTable


def askable_keys(keys: TypedKeys) -> npt.NDArray[np.int32]:
    """The positions of the keys that may be asked."""
    is_askable = np.ones(keys.size, np.bool_)
    is_askable[keys.nulls] = False
    is_askable[list(keys.faults)] = False
    return np.flatnonzero(is_askable).astype(np.int32)


def unaskable_answers(keys: TypedKeys) -> Iterator[Answer]:
    """The answers to all others: NULLs are missing, faulty keys are errors."""
    if len(keys.nulls):
        yield rowless_answer(keys.nulls, Outcome.MISSING)
    if keys.faults:
        positions = np.array(list(keys.faults), np.int32)
        yield replace(rowless_answer(positions, Outcome.ERROR), errors=dict(keys.faults))


Positions = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class KeyGroup:
    """Keys of one lookup with their positions in it."""

    positions: Positions
    keys: CanonicalKeys


@dataclass(frozen=True, slots=True)
class LocalAnswers:
    """What is known of a lookup's keys: answers, and those that are left to ask for."""

    answers: list[Answer]
    unknown: KeyGroup
    outdated: KeyGroup  # answered with a stale row, to be read anew


_NO_KEYS = KeyGroup(np.zeros(0, np.int32), CanonicalKeys(np.zeros(0, np.uint64), None))


class LocalResolver:
    """The cache of one dimension and what stands beside it; `now` is monotonic seconds.

    Raises BackendError when the default row does not fit the schema.
    """

    def __init__(self, settings: DimensionSettings, schema: DimensionSchema, *, seed: int) -> None:
        self._settings = settings
        self._seed = seed
        self.schema = schema
        self.cache: RowCache | FullTable
        if settings.cache.mode is CacheMode.FULL:
            self.cache = FullTable(schema, settings.cache)
        else:
            self.cache = RowCache(schema, settings.cache)
        self.is_trusted = True  # else what was kept may have changed without a word
        self._single_keys = SingleKeys(schema, seed=seed)
        self._quarantine = Quarantine()
        self._stale = StaleRows(self.cache, settings.cache)
        self._default = None
        if settings.default is not None:
            self._default = default_row(settings.default, schema.columns)

    def canonical(self, columns: pa.RecordBatch, positions: Positions) -> CanonicalKeys:
        """The keys at these positions of a batch in their canonical form."""
        if len(positions) < columns.num_rows:
            columns = columns.take(pa.array(positions))
        return canonical_keys(columns, seed=self._seed)

    def look_up(self, request: LookupRequest, now: float, *, is_store_down: bool) -> LocalAnswers:
        """What is known of the keys; counts as a visit.

        While the store is down, rows that may stand in for a failure do so at once.
        """
        positions = askable_keys(request.keys)
        keys = self.canonical(request.keys.columns, positions)
        probe = self._believed(self.cache.probe(keys, now))
        is_outdated = self.is_revalidated(probe)
        is_served = is_outdated | self._stale.if_error(probe) if is_store_down else is_outdated
        is_unknown = ~(probe.is_row | probe.is_missing | is_served)
        known = cached_answers(
            self.cache,
            probe,
            is_served_stale=is_served,
            positions=positions,
            columns=request.columns,
        )
        answers = [*unaskable_answers(request.keys), *known]
        unknown = _group(keys, positions, is_unknown)
        outdated = _group(keys, positions, is_outdated)
        if len(self._quarantine):
            refused, unknown = self._parted(unknown, now)
            answers += refused
        answers = self.with_default(answers, request.columns)
        return LocalAnswers(answers, unknown, outdated)

    def hit(self, value: object, now: float) -> Hit | None:
        """The fresh row of the key that has this value; None for all that needs a closer look."""
        key = self._single_keys.of(value)
        return self.cache.hit(key, now) if self.is_trusted and key is not None else None

    def revisit(self, bookmark: Bookmark, now: float) -> float | None:
        """The age of a row that was a hit and is one again; None if `hit` has to find out."""
        return self.cache.revisit(bookmark, now) if self.is_trusted else None

    def keep(
        self,
        query: Query,
        landing: QueryResult,
        *,
        may_keep: npt.NDArray[np.bool_],
        is_last_try: bool,
        now: float,
    ) -> None:
        """Keep what a query brought, but for what an invalidation has overtaken."""
        if self._settings.cache.mode is CacheMode.NONE:
            return
        is_known = landing.is_known(is_last_try=is_last_try)
        kept = np.flatnonzero(may_keep & is_known).astype(np.int32)
        row_of = landing.row_of[kept]
        rows = landing.rows.take(pa.array(row_of[row_of >= 0]))
        keys = self.canonical(query.keys, kept)
        # What a store held before it was asked is as old as that.
        read_at = min(query.sent_at, now - landing.age_ms / 1000)
        self.cache.fill(keys, row_of >= 0, rows=rows, read_at=read_at, now=now)
        several = np.flatnonzero(landing.row_of == SEVERAL_ROWS).astype(np.int32)
        if several.size:  # an old row is not the answer any more, and must not be served as stale
            self.cache.invalidate(self.canonical(query.keys, several))

    def with_default(self, answers: Sequence[Answer], columns: Sequence[str]) -> list[Answer]:
        """The same, the default row in the place of absences if there is one."""
        if self._default is None:
            return list(answers)
        row = self._default.select(columns)
        return [_defaulted(answer, row) for answer in answers]

    def failed(
        self,
        key_ids: Sequence[KeyId],
        positions: Positions,
        *,
        columns: Sequence[str],
        code: ErrorCode,
        now: float,
    ) -> Iterator[Answer]:
        """The answers to keys of one lookup that failed: stale rows where they may, else the error.

        Key i is at `positions[i]` of the lookup.
        """
        if self._stale.may_serve(code):
            keys = keys_of_ids(key_ids, seed=self._seed)
            probe = self._believed(self.cache.peek(keys, now))
            for answer in self._stale.instead_of_error(probe, positions=positions, columns=columns):
                yield answer
                positions = np.setdiff1d(positions, answer.positions)
        if positions.size:
            outcome = Outcome.TIMEOUT if code is ErrorCode.TIMEOUT else Outcome.ERROR
            yield rowless_answer(positions, outcome, error=code)

    def is_revalidated(self, probe: Probe) -> npt.NDArray[np.bool_]:
        """Which keys of a probe are answered with a stale row, and read anew."""
        if not self.is_trusted:
            return np.zeros_like(probe.is_stale)
        return self._stale.while_revalidating(probe)

    def condemn(self, key_ids: Sequence[KeyId], now: float) -> ErrorCode:
        """Note a key that the store refuses; several are only told that one of them was refused."""
        if len(key_ids) > 1:
            return ErrorCode.BACKEND_REJECTED
        self._quarantine.add(key_ids[0], now)
        return ErrorCode.KEY_REJECTED

    def refused_until(self, key_id: KeyId, now: float) -> float | None:
        """Until when this key counts as refused; None if it does not."""
        return self._quarantine.until(key_id, now)

    def change(self, changes: RowChanges, now: float) -> tuple[CanonicalKeys, int]:
        """Follow what has changed, or forget it: which keys, and how many were cached."""
        keys = self.canonical(changes.keys, np.arange(changes.keys.num_rows, dtype=np.int32))
        if isinstance(self.cache, RowCache):
            return keys, self.cache.invalidate(keys)
        before = len(self.cache)
        self.cache.apply(keys, changes.has_row, is_gone=changes.is_gone, rows=changes.rows, now=now)
        return keys, max(before - len(self.cache), 0)

    def forget(self, keys: TypedKeys | None) -> tuple[Hashes | None, int]:
        """Forget keys, all for None: their hashes (None for all), and how many were cached."""
        if keys is None:
            self._quarantine.clear()
            return None, self.cache.clear()
        canonical = self.canonical(keys.columns, askable_keys(keys))
        self._quarantine.remove(canonical.ids())
        return canonical.hashes, self.cache.invalidate(canonical)

    def peek(self, keys: TypedKeys, now: float) -> tuple[Positions, CanonicalKeys, Probe]:
        """What the cache knows of the keys that may be asked; leaves no trace."""
        positions = askable_keys(keys)
        canonical = self.canonical(keys.columns, positions)
        return positions, canonical, self._believed(self.cache.peek(canonical, now))

    def _believed(self, probe: Probe) -> Probe:
        return probe if self.is_trusted else all_stale(probe)

    def _parted(self, group: KeyGroup, now: float) -> tuple[list[Answer], KeyGroup]:
        is_refused = self._quarantine.is_in(group.keys.ids(), now)
        if not is_refused.any():
            return [], group
        refused = group.positions[is_refused]
        answer = rowless_answer(refused, Outcome.ERROR, error=ErrorCode.KEY_REJECTED)
        return [answer], _group(group.keys, group.positions, ~is_refused)


def _group(keys: CanonicalKeys, positions: Positions, is_in: npt.NDArray[np.bool_]) -> KeyGroup:
    if not is_in.any():  # as a rule: this is the way of the hits
        return _NO_KEYS
    chosen = np.flatnonzero(is_in).astype(np.int32)
    return KeyGroup(positions[chosen], keys.take(chosen))


def _defaulted(answer: Answer, row: pa.RecordBatch) -> Answer:
    if answer.rows is not None or not answer.size or answer.outcomes[0] != Outcome.MISSING:
        return answer
    outcomes = np.full(answer.size, Outcome.DEFAULT, np.uint8)
    return replace(
        answer, outcomes=outcomes, rows=row.take(pa.array(np.zeros(answer.size, np.int32)))
    )

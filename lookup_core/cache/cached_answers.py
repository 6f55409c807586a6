"""Cached answers: lookups of one channel in a shared cache, before any message to the service.

Answers as `LocalResolver` does, and leaves to the service what it must know of: stale rows, which
it refreshes, and invalid keys.
"""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lookup_core.answer import Answer, Outcome, ages_ms, rowless_answer, with_default
from lookup_core.cache.cache_view import EntryReader, FoundRows, stored_schema
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys, has_number_keys
from lookup_core.keys.key_index import Slots
from lookup_core.keys.typed_keys import KeyCasts
from lookup_core.lookup_options import LookupOptions
from lookup_core.settings import CacheMode, CacheSettings

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int32]

_SAMPLE_KEYS = 256
_DISTINCT_SAMPLE_SHARE = 0.9  # to find distinct keys takes a tenth of the time of their lookups


@dataclass(frozen=True, slots=True)
class CacheDescription:
    """What a reader must know of a cache; it never changes."""

    schema: DimensionSchema
    seed: int  # for the hashes
    settings: CacheSettings  # mode and times to live
    default: pa.RecordBatch | None = None  # the row of missing keys, in all columns

    def encoded(self) -> bytes:
        """The content of its file."""
        settings = self.settings
        return json.dumps(
            {
                "key": _stream(self.schema.key, None),
                "columns": _stream(self.schema.columns, self.default),
                "seed": self.seed,
                "mode": settings.mode.value,
                "ttl_s": settings.ttl_s,
                "negative_ttl_s": settings.negative_ttl_s,
                "ttl_jitter": settings.ttl_jitter,
            }
        ).encode()

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns of the rows in its segments."""
        return stored_schema(self.schema, is_shared=True)

    @classmethod
    def decoded(cls, content: bytes) -> "CacheDescription":
        """The description of a file's content; raises ValueError for another one."""
        try:
            found = json.loads(content)
            key, columns = _opened(found.pop("key")), _opened(found.pop("columns"))
            seed, mode = found.pop("seed"), CacheMode(found.pop("mode"))
            settings = CacheSettings(mode=mode, **found)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no description of a cache: {error!r}") from error
        schema = DimensionSchema(key.schema, columns.schema)
        return cls(schema, seed, settings, default=next(iter(columns), None))


def _stream(schema: pa.Schema, row: pa.RecordBatch | None) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if row is not None:
            writer.write_batch(row)
    return base64.b64encode(sink.getvalue()).decode()


def _opened(text: str) -> pa.RecordBatchReader:
    return pa.ipc.open_stream(base64.b64decode(text))


@dataclass(frozen=True, slots=True)
class CachedAnswers:
    """The answers to some of n keys, each with one outcome; the other keys need the service."""

    answers: Sequence[Answer]
    visited: Slots  # rows whose visits count

    @property
    def size(self) -> int:
        """The number of keys with an answer."""
        return sum(answer.size for answer in self.answers)

    def is_open(self, count: int) -> Mask:
        """Which of `count` keys have no answer."""
        is_open = np.ones(count, np.bool_)
        for answer in self.answers:
            is_open[answer.positions] = False
        return is_open


class CachedLookup:
    """The lookups of one channel in one cache."""

    def __init__(
        self,
        description: CacheDescription,
        *,
        key: pa.Schema,
        columns: Sequence[str],
        options: LookupOptions,
    ) -> None:
        """`key` has the fields of the lookups, in their order, with the names of the dimension's.

        Raises InvalidRequest if they do not fit.
        """
        self._has_number_keys = has_number_keys(description.schema)
        self._casts = KeyCasts(key, description.schema)
        self._seed = description.seed
        self._columns = tuple(columns)
        self._options = options
        # The column of `retry_if` is read, too.
        needed = () if options.retry_if in {None, *columns} else (options.retry_if,)
        self._read = (*columns, *needed)
        default = description.default
        self._default = None if default is None else default.select(self._columns)

    def takes_repeated(self, keys: pa.RecordBatch) -> bool:
        """Whether keys that may repeat are cheaper to answer than to find the distinct ones."""
        if keys.num_rows <= _SAMPLE_KEYS:  # a few more keys cost less than to look at the others
            return self._has_number_keys
        sample = keys.column(0).slice(0, _SAMPLE_KEYS)
        return (
            self._has_number_keys and len(sample.unique()) >= _DISTINCT_SAMPLE_SHARE * _SAMPLE_KEYS
        )

    def answers(self, reader: EntryReader, keys: pa.RecordBatch, now: float) -> CachedAnswers:
        """Answer what the cache knows; `now` is monotonic seconds."""
        typed = self._casts.typed_keys(keys)
        columns, valid, answers = typed.columns, None, []
        if len(typed.nulls) or typed.faults:
            valid = typed.valid_positions()
            columns = columns.take(pa.array(valid))
            answers.append(rowless_answer(typed.nulls, Outcome.MISSING))
        found = reader.read(canonical_keys(columns, seed=self._seed), self._read, now)
        rows, missing = self._kept(found.rows), self._recent(found.missing)
        if len(rows.positions):
            outcomes = np.zeros(len(rows.positions), np.uint8)  # HIT
            answers.append(
                Answer(_positions(rows, valid), outcomes, ages_ms(rows.ages_s), rows.rows)
            )
        if len(missing.positions) and not self._options.max_retries:
            answer = rowless_answer(_positions(missing, valid), Outcome.MISSING)
            answers.append(replace(answer, ages_ms=ages_ms(missing.ages_s)))
        if self._default is not None:
            answers = [with_default(answer, self._default) for answer in answers]
        return CachedAnswers(answers, found.visited)

    def _recent(self, found: FoundRows) -> FoundRows:
        if self._options.max_age_ms is None:
            return found
        return found.only(found.ages_s < self._options.max_age_s)

    def _kept(self, found: FoundRows) -> FoundRows:
        found = self._recent(found)
        if self._options.retry_if is None:
            return found
        is_null = found.rows.column(self._read.index(self._options.retry_if)).is_null()
        found = found.only(~is_null.to_numpy(zero_copy_only=False))
        return replace(found, rows=found.rows.select(self._columns))


def _positions(found: FoundRows, valid: Positions | None) -> Positions:
    """The positions in the request; `valid` are those of the keys that were looked up."""
    return found.positions.astype(np.int32) if valid is None else valid[found.positions]

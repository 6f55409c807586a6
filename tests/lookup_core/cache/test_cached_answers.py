"""What a probe found, told as answers."""

import numpy as np
import pyarrow as pa

from lookup_core.answer import Outcome
from lookup_core.cache.cached_answers import cached_answers
from lookup_core.cache.row_cache import RowCache
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.keys.canonical_keys import canonical_keys
from lookup_core.settings import CacheSettings

SCHEMA = DimensionSchema(
    pa.schema({"id": pa.int64()}), pa.schema({"name": pa.utf8(), "tier": pa.int32()})
)


def filled(*, at: float, **names: str | None) -> RowCache:
    """A cache with rows and absences that came in one after the other: `k7="Ada"`."""
    cache = RowCache(
        SCHEMA, CacheSettings(ttl_s=100.0, negative_ttl_s=100.0, stale_if_error_s=50.0)
    )
    for key, name in names.items():
        columns = pa.record_batch([pa.array([int(key[1:])], pa.int64())], SCHEMA.key)
        has_row = np.array([name is not None])
        values = [] if name is None else [name]
        rows = pa.record_batch(
            [pa.array(values, pa.utf8()), pa.array([len(each) for each in values], pa.int32())],
            SCHEMA.columns,
        )
        cache.fill(canonical_keys(columns), has_row, rows=rows, read_at=at, now=at)
    return cache


def told(cache: RowCache, *keys: int, columns: tuple[str, ...], now: float) -> list[object]:
    """The answers as values; key i stands at position 10 + i of its lookup."""
    asked = pa.record_batch([pa.array(keys, pa.int64())], SCHEMA.key)
    probe = cache.probe(canonical_keys(asked), now)
    positions = np.arange(10, 10 + len(keys), dtype=np.int32)
    return [
        (
            dict(zip(answer.positions.tolist(), answer.outcomes.tolist(), strict=True)),
            answer.ages_ms.tolist(),
            None
            if answer.rows is None
            else dict(zip(answer.positions.tolist(), answer.rows.to_pylist(), strict=True)),
        )
        for answer in cached_answers(
            cache,
            probe,
            is_served_stale=probe.is_stale,
            positions=positions,
            columns=columns,
        )
    ]


def test_rows_and_absences_are_told_apart() -> None:
    """Absences come in one answer, rows in another; what is unknown comes in none."""
    cache = filled(at=1.0, k7="Ada", k8=None, k9="Bert")

    assert told(cache, 9, 5, 8, 7, 9, columns=("tier",), now=3.5) == [
        ({12: Outcome.MISSING}, [2500], None),
        (
            {10: Outcome.HIT, 13: Outcome.HIT, 14: Outcome.HIT},
            [2500, 2500, 2500],
            {10: {"tier": 4}, 13: {"tier": 3}, 14: {"tier": 4}},
        ),
    ]


def test_stale_rows_are_told_apart() -> None:
    """Rows beyond their time come with the others, under an outcome of their own."""
    cache = filled(at=0.0, k7="Ada", k8=None)
    later = filled(at=90.0, k9="Bert")

    assert told(cache, 7, 8, columns=("tier",), now=120.0) == [
        ({10: Outcome.STALE}, [120_000], {10: {"tier": 3}})
    ]
    assert told(later, 9, columns=("tier",), now=120.0) == [
        ({10: Outcome.HIT}, [30_000], {10: {"tier": 4}})
    ]


def test_unknown_keys_are_no_answer() -> None:
    """When the cache knows nothing there is nothing to tell."""
    assert told(filled(at=0.0), 7, 8, columns=("name",), now=1.0) == []


def test_clock_may_run_for_long() -> None:
    """After months of uptime the ages are those of the rows; unknown keys are no trouble."""
    now = 1e9
    (answer,) = told(filled(at=now - 1, k7="Ada"), 7, 8, columns=("name",), now=now)

    assert answer == ({10: Outcome.HIT}, [1000], {10: {"name": "Ada"}})


def test_oldest_age_that_can_be_told() -> None:
    """Beyond seven weeks an age is told as seven weeks, and not as a small one."""
    cache = RowCache(SCHEMA, CacheSettings(ttl_s=1e9))
    columns = pa.record_batch([pa.array([7], pa.int64())], SCHEMA.key)
    rows = pa.record_batch([pa.array(["Ada"]), pa.array([3], pa.int32())], SCHEMA.columns)
    cache.fill(canonical_keys(columns), np.array([True]), rows=rows, read_at=0.0, now=0.0)

    (answer,) = told(cache, 7, columns=("tier",), now=50 * 86_400.0)

    assert answer == ({10: Outcome.HIT}, [2**32 - 1], {10: {"tier": 3}})


def test_columns_come_as_asked() -> None:
    """The columns asked for, in their order."""
    (answer,) = told(filled(at=0.0, k7="Ada"), 7, columns=("tier", "name"), now=0.0)

    assert answer == ({10: Outcome.HIT}, [0], {10: {"tier": 3, "name": "Ada"}})

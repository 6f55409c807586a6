"""Keys that repeat: whether a reader of a shared cache finds the distinct ones first."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.cache.cached_answers import CachedAnswers, CacheDescription, CachedLookup
from lookup_core.lookup_options import NO_OPTIONS
from lookup_core.settings import CacheSettings
from tests.lookup_core.cache.row_caches import KINDS


@pytest.mark.parametrize(
    ("kind", "numbers", "expected"),
    [
        ("number", range(1_000), True),
        ("number", [*range(250), *range(6)], True),
        ("number", [*range(100), *range(100)], False),
        ("number", [], True),
        ("equal hashes", range(10), False),
    ],
    ids=["distinct", "hardly any", "each twice", "no keys", "texts"],
)
def test_repeated_numbers_are_answered_one_by_one(
    kind: str,
    numbers: list[int],
    expected: bool,  # noqa: FBT001 -- a case
) -> None:
    """Numbers that hardly repeat are cheaper to answer than to compare; texts never are."""
    schema = KINDS[kind].schema
    description = CacheDescription(schema, 0, CacheSettings(max_bytes=2**20))
    lookup = CachedLookup(description, key=schema.key, columns=["position"], options=NO_OPTIONS)
    values = [str(number) if kind != "number" else number for number in numbers]

    keys = pa.record_batch([pa.array(values, schema.key.field(0).type)], schema=schema.key)

    assert lookup.takes_repeated(keys) is expected
    assert CachedAnswers([], np.zeros(0, np.int32)).size == 0

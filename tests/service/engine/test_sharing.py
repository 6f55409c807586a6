"""The cache of a dimension in shared memory: its folder, its figures, and why there is none."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lookup_core.answer import Outcome
from lookup_core.settings import CacheMode, CacheSettings, CacheShare
from lookup_core.statistics import DimensionStatistics
from service.resources.shared_memory import SharedCaches
from tests.service.engine.running import customers, is_fit, lookup, running, settings, until
from tests.service.engine.test_schema_changes import BARE, SCHEMA_CHANGED, change

NO_SLOTS = np.zeros(0, np.int32)
SHARED = CacheSettings()


async def statistics_with(cache: CacheSettings, caches: SharedCaches) -> DimensionStatistics:
    """The statistics of a dimension that has been looked up."""
    chosen = replace(settings(), cache=cache)
    async with running(customers(), chosen, shared_caches=caches) as dimension:
        await lookup(dimension, 7)
        assert (dimension.shared_folder is None) == bool(dimension.statistics().shared.why_private)
        return dimension.statistics()


@pytest.mark.parametrize(
    ("cache", "why"),
    [
        (SHARED, None),
        (replace(SHARED, share=CacheShare.OFF), "cache.share is off"),
        (replace(SHARED, mode=CacheMode.NONE), "cache.mode is none"),
    ],
    ids=["shared", "off", "no rows"],
)
async def test_settings_decide_whether_workers_read_a_cache(
    tmp_path: Path, cache: CacheSettings, why: str | None
) -> None:
    """A cache is shared unless the settings say otherwise, and its files are counted."""
    shared = (await statistics_with(cache, SharedCaches(tmp_path))).shared

    assert shared.why_private == why
    assert (shared.bytes > 0) == (why is None)


async def test_lookups_of_workers_count(tmp_path: Path) -> None:
    """Outcomes that workers report are lookups of the dimension, also after a schema change."""
    backend = customers()
    async with running(backend, shared_caches=SharedCaches(tmp_path)) as dimension:
        await lookup(dimension, 7)
        dimension.on_cached({Outcome.HIT: 5, Outcome.MISSING: 2, Outcome.DEFAULT: 1}, NO_SLOTS)
        folder = dimension.shared_folder
        change(backend, BARE)
        assert await lookup(dimension, 9) == SCHEMA_CHANGED
        await until(lambda: is_fit(dimension) and dimension.schema.known().is_same(BARE))
        dimension.on_cached({Outcome.HIT: 10}, NO_SLOTS)

        statistics = dimension.statistics()
        assert statistics.shared.keys == 18
        assert statistics.outcomes[Outcome.HIT] == 15
        assert dimension.shared_folder not in {folder, None}
    assert folder is not None
    assert not os.path.lexists(folder)  # noqa: ASYNC240  nothing waits for it

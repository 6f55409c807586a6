"""Which rows beyond their time are served: the two windows, at their edges."""

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Outcome
from lookup_core.cache.row_cache import Probe, RowCache
from lookup_core.dimension.stale_rows import StaleRows, all_stale
from lookup_core.errors import ErrorCode
from lookup_core.keys.canonical_keys import CanonicalKeys, canonical_keys
from lookup_core.settings import CacheSettings
from tests.lookup_core.dimension.dimension_script import SCHEMA

SETTINGS = CacheSettings(ttl_s=10.0, stale_while_revalidate_s=2.0, stale_if_error_s=6.0)


def keys(*values: int) -> CanonicalKeys:
    """Keys as the cache knows them."""
    return canonical_keys(pa.record_batch([pa.array(values, pa.int64())], SCHEMA.key))


def probe_of(stale: StaleRows, *values: int, now: float) -> Probe:
    """What the cache knows of these keys."""
    assert isinstance(stale.cache, RowCache)
    return stale.cache.peek(keys(*values), now)


@pytest.fixture
def stale() -> StaleRows:
    """Key 7 has a row, key 8 has none; read at 0 s."""
    cache = RowCache(SCHEMA, SETTINGS)
    rows = pa.record_batch([pa.array(["Ada"])], SCHEMA.columns)
    cache.fill(keys(7, 8), np.array([True, False]), rows=rows, read_at=0.0, now=0.0)
    return StaleRows(cache, SETTINGS)


@pytest.mark.parametrize(
    ("now", "while_revalidating", "if_error"),
    [
        (9.99, False, False),
        (10.0, True, True),
        (11.99, True, True),
        (12.0, False, True),
        (15.99, False, True),
        (16.0, False, False),
    ],
)
def test_windows_end_at_their_limits(
    stale: StaleRows,
    now: float,
    while_revalidating: bool,  # noqa: FBT001  a parameter of the test
    if_error: bool,  # noqa: FBT001  as above
) -> None:
    """A row may be served from its time to live on, to the end of each window; an absence never."""
    probe = probe_of(stale, 7, 8, now=now)

    assert stale.while_revalidating(probe).tolist() == [while_revalidating, False]
    assert stale.if_error(probe).tolist() == [if_error, False]


def test_row_stands_in_for_an_error(stale: StaleRows) -> None:
    """The row comes with its true age, for the places of its key; others stay without an answer."""
    positions = np.array([4, 5, 6], np.int32)

    probe = probe_of(stale, 9, 7, 8, now=15.0)
    (answer,) = stale.instead_of_error(probe, positions=positions, columns=["name"])

    assert answer.positions.tolist() == [5]
    assert answer.outcomes.tolist() == [Outcome.STALE]
    assert answer.ages_ms.tolist() == [15_000]
    assert answer.rows.to_pydict() == {"name": ["Ada"]}  # type: ignore[union-attr]  # it has rows


def test_row_that_came_meanwhile_is_a_hit(stale: StaleRows) -> None:
    """A row that another query has brought is no worse than an old one."""
    probe = probe_of(stale, 7, now=1.0)

    (answer,) = stale.instead_of_error(probe, positions=np.array([0], np.int32), columns=["name"])

    assert answer.outcomes.tolist() == [Outcome.HIT]


def test_unfit_rows_stand_in_for_nothing(stale: StaleRows) -> None:
    """When nothing may be served there is no answer."""
    probe = probe_of(stale, 7, 8, now=16.0)

    none = stale.instead_of_error(probe, positions=np.array([0, 1], np.int32), columns=["name"])

    assert list(none) == []


def test_untrusted_rows_are_stale(stale: StaleRows) -> None:
    """What may have changed unseen is served where its age allows it, and never as fresh."""
    probe = all_stale(probe_of(stale, 7, 8, now=1.0))

    assert probe.is_stale.tolist() == [True, False]
    assert not (probe.is_row | probe.is_missing).any()
    assert stale.if_error(probe).tolist() == [True, False]


def test_no_window_serves_no_untrusted_row(stale: StaleRows) -> None:
    """Who did not ask for stale rows gets none, however young they are."""
    plain = StaleRows(stale.cache, CacheSettings(ttl_s=10.0))

    assert not plain.if_error(all_stale(probe_of(stale, 7, now=1.0))).any()


@pytest.mark.parametrize(
    ("code", "is_served"),
    [
        (ErrorCode.TIMEOUT, True),
        (ErrorCode.BACKEND_UNAVAILABLE, True),
        (ErrorCode.FORBIDDEN, False),
        (ErrorCode.SCHEMA_CHANGED, False),
        (ErrorCode.KEY_REJECTED, False),
    ],
)
def test_old_rows_hide_passing_troubles_only(
    stale: StaleRows,
    code: ErrorCode,
    is_served: bool,  # noqa: FBT001  as above
) -> None:
    """What may not be read any more, or has another shape, is not served from memory."""
    assert stale.may_serve(code) is is_served
    assert not StaleRows(stale.cache, CacheSettings()).may_serve(code)

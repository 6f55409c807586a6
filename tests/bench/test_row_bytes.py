"""What a cached row takes."""

import pytest

from bench.row_bytes import CachedRows, cached_rows


def test_ratio_is_by_rows_that_are_kept() -> None:
    """Rows that went do not make those that stayed look cheaper."""
    filled = CachedRows(
        put_rows=1000,
        kept_rows=100,
        arrow_row_bytes=40.0,
        cache_bytes=8000,
        process_bytes=0,
        used_bytes=0,
    )

    assert filled.ratio == 2.0


@pytest.mark.parametrize("is_roomy", [True, False])
def test_filled_cache_is_counted(*, is_roomy: bool) -> None:
    """With room all rows are kept; at the bound some go, and the bytes stay below it."""
    filled = cached_rows(60_000, is_roomy=is_roomy)

    assert (filled.kept_rows == filled.put_rows) is is_roomy
    assert filled.arrow_row_bytes > 35.0
    if not is_roomy:
        assert filled.cache_bytes <= filled.arrow_row_bytes * filled.put_rows

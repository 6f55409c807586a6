"""How many keys are asked for at once, by the rows that came before."""

from lookup_core.dimension.batcher import QUERY_BYTES, QuerySize

MAX_KEYS = 500


def learned(*row_bytes: int) -> QuerySize:
    """After queries that brought ten rows each, of so many bytes a row."""
    size = QuerySize(MAX_KEYS)
    for each in row_bytes:
        size.on_rows(10, 10 * each, absent=0)
    return size


def test_nothing_is_bounded_before_a_row_came() -> None:
    """The size of rows is not known: queries have as many keys as they may."""
    size = learned()
    size.on_rows(0, 0, absent=9)

    assert size.keys == MAX_KEYS


def test_small_rows_bound_nothing() -> None:
    """As many keys as a query may have bring fewer bytes than it may bring."""
    assert learned(1000).keys == MAX_KEYS


def test_large_rows_make_small_queries() -> None:
    """The rows of one query are about so many bytes that they may be there four times."""
    row_bytes = 100_000

    assert learned(*[row_bytes] * 30).keys == QUERY_BYTES // row_bytes


def test_huge_rows_come_one_by_one() -> None:
    """A row that is larger than a query's bytes is asked for alone."""
    assert learned(10 * QUERY_BYTES).keys == 1


def test_bound_goes_with_large_rows() -> None:
    """When small rows come again, queries become as large as they were."""
    assert learned(100_000, *[100] * 60).keys == MAX_KEYS


def test_bound_goes_with_absent_rows() -> None:
    """One huge row does not make small queries for good of keys that have no rows."""
    size, queries = learned(QUERY_BYTES), 0
    while size.keys < MAX_KEYS:
        size.on_rows(0, 0, absent=size.keys)
        queries += 1

    assert queries < 200

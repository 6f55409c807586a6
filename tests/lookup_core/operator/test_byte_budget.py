"""How many rows fit when rows and answers are large."""

from lookup_core.operator.batch_intake import ByteBudget


def test_rows_fit_by_their_own_size() -> None:
    """Before any answer is known, the input's size alone counts."""
    budget = ByteBudget(max_bytes=1000)

    assert budget.rows_that_fit(row_bytes=10) == 100
    budget.add(60, row_bytes=10)
    assert budget.rows_that_fit(row_bytes=10) == 40
    budget.remove(60, row_bytes=10)
    assert budget.rows_that_fit(row_bytes=10) == 100
    budget.check_invariants()


def test_answers_seen_reserve_their_room() -> None:
    """Rows in flight are expected to get answers as large as those seen."""
    budget = ByteBudget(max_bytes=1000)
    budget.on_answered(10, answer_bytes=900)

    assert budget.rows_that_fit(row_bytes=10) == 10
    budget.add(4, row_bytes=10)
    assert budget.rows_that_fit(row_bytes=10) == 6


def test_one_row_always_fits_alone() -> None:
    """A row larger than the budget goes alone, and only then."""
    budget = ByteBudget(max_bytes=1000)

    assert budget.rows_that_fit(row_bytes=5000) == 1
    budget.add(1, row_bytes=5000)
    assert budget.rows_that_fit(row_bytes=5000) == 0
    assert budget.rows_that_fit(row_bytes=0) == 0


def test_rows_without_bytes_fit() -> None:
    """Nothing divides by a size of zero."""
    assert ByteBudget(max_bytes=1000).rows_that_fit(row_bytes=0) == 1000

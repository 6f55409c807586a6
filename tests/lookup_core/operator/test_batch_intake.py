"""An input batch on its way into an element queue."""

from hypothesis import given
from hypothesis import strategies as st

from lookup_core.operator.batch_intake import BatchIntake, Rows, Run
from lookup_core.operator.event_time_watermarks import Cut


def test_whole_batch_goes_in_at_once() -> None:
    """With room for everything there is one run, with the watermarks where they belong."""
    intake = BatchIntake(5, [Cut(2, 10), Cut(5, 20)])

    assert intake.places_left == 7
    assert intake.take(places=99, rows=99) == Run(
        Rows(0, 5), (Rows(0, 2), Cut(2, 10), Rows(2, 5), Cut(5, 20))
    )
    assert intake.places_left == 0


def test_little_room_parts_the_batch() -> None:
    """Watermarks take places like rows, and may have to wait for them."""
    intake = BatchIntake(3, [Cut(2, 10)])

    assert intake.take(places=2, rows=99) == Run(Rows(0, 2), (Rows(0, 2),))
    assert intake.take(places=1, rows=99) == Run(Rows(2, 2), (Cut(2, 10),))
    assert intake.take(places=1, rows=99) == Run(Rows(2, 3), (Rows(2, 3),))
    assert intake.take(places=1, rows=99) == Run(Rows(3, 3), ())


def test_rows_are_limited_apart_from_places() -> None:
    """A bound on the rows leaves the others outside."""
    intake = BatchIntake(5, [])

    assert intake.take(places=99, rows=2) == Run(Rows(0, 2), (Rows(0, 2),))
    assert intake.places_left == 3


cuts = st.sets(st.integers(1, 20), max_size=6).map(sorted)


@given(cuts, st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=60, max_size=60))
def test_everything_goes_in_once_in_order(ends: list[int], room: list[tuple[int, int]]) -> None:
    """Whatever the room, rows and watermarks go in once, in order, and within it."""
    all_cuts = [Cut(end, end * 10) for end in ends]
    intake = BatchIntake(20, all_cuts)
    taken: list[int | Cut] = []

    for places, rows in room:
        run = intake.take(places=places, rows=rows)
        intake.check_invariants()
        sizes = [part.stop - part.start for part in run.elements if isinstance(part, Rows)]
        assert sum(sizes) == run.rows.stop - run.rows.start <= rows
        assert sum(sizes) + len(run.elements) - len(sizes) <= places
        for part in run.elements:
            taken += range(part.start, part.stop) if isinstance(part, Rows) else [part]

    expected: list[int | Cut] = []
    for row in range(20):
        expected += [row, *(cut for cut in all_cuts if cut.rows == row + 1)]
    assert taken == expected

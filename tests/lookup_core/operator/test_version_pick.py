"""Which version is valid at a time, against a search one by one."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lookup_core.errors import ProtocolViolation
from lookup_core.operator.as_of import NEVER_US, NO_VERSION, VersionPick, moments_us

TIME = pa.timestamp("us")
NAME = pa.schema({"name": pa.utf8()})

Version = tuple[int | None, int | None]  # valid from, valid to
Rows = list[list[Version]]


@dataclass(frozen=True, slots=True)
class Record:
    """Asks for a row at a time."""

    row: int
    at: int | None


def lists(rows: Rows) -> pa.RecordBatch:
    """The rows as the service sends them, each version named by its row and place."""
    ordered = [sorted(row, key=lambda each: () if each[0] is None else (each[0],)) for row in rows]
    names = [[f"{n}.{place}" for place in range(len(row))] for n, row in enumerate(ordered)]
    begins, ends = ([[each[side] for each in row] for row in ordered] for side in (0, 1))
    columns = [pa.array(names, pa.list_(pa.utf8()))]
    columns += [pa.array(each, pa.list_(TIME)) for each in (begins, ends)]
    return pa.record_batch(columns, ["name", "valid_from", "valid_to"])


def valid(row: list[Version], at: int | None, *, has_ends: bool) -> int | None:
    """The place of the version that counts, found one by one."""
    ordered = sorted(row, key=lambda each: () if each[0] is None else (each[0],))
    found = None
    for place, (begin, end) in enumerate(ordered):
        if at is None or (begin is not None and begin > at):
            continue
        if has_ends and end is not None and end <= at:
            continue
        found = place
    return found


def picked(batch: pa.RecordBatch, records: list[Record], *, has_ends: bool) -> list[str | None]:
    """The names that the records get."""
    pick = VersionPick(NAME, 1, 2 if has_ends else None)
    times = moments_us(pa.array([each.at for each in records], TIME), null_us=NEVER_US)
    rows = np.array([each.row for each in records], np.int64)
    found = pick.picked(batch, rows, times)
    assert found.rows.schema == NAME
    names = found.rows.column(0)
    return [None if place == NO_VERSION else names[place].as_py() for place in found.places]


moments = st.one_of(st.none(), st.integers(-3, 12))
version_rows = st.lists(st.lists(st.tuples(moments, moments), max_size=7), min_size=1, max_size=5)


@given(version_rows, st.lists(st.tuples(st.integers(0, 99), moments), max_size=30), st.booleans())
@example([[(0, 9), (1, 2), (3, 4)], [(2, 3)]], [(0, 5), (0, 1), (1, 9)], True)  # noqa: FBT003
@example([[]], [(0, 1)], True)  # noqa: FBT003
def test_version_is_that_of_a_plain_search(
    rows: Rows,
    asked: list[tuple[int, int | None]],
    has_ends: bool,  # noqa: FBT001
) -> None:
    """Gaps, overlaps, NULLs, equal times, empty lists: as if each was looked for alone."""
    records = [Record(row % len(rows), at) for row, at in asked]

    found = picked(lists(rows), records, has_ends=has_ends)

    places = [valid(rows[each.row], each.at, has_ends=has_ends) for each in records]
    expected = [
        None if place is None else f"{each.row}.{place}"
        for each, place in zip(records, places, strict=True)
    ]
    assert found == expected


def test_borders_belong_to_the_later_version() -> None:
    """A version is valid from its first moment on, and not at its last."""
    batch = lists([[(10, 20), (20, None)]])

    found = picked(batch, [Record(0, at) for at in (9, 10, 19, 20, 99)], has_ends=True)

    assert found == [None, "0.0", "0.0", "0.1", "0.1"]


def test_rows_of_a_slice_are_found() -> None:
    """An answer may be a part of a larger batch."""
    batch = lists([[(0, 9)], [(0, 1), (5, None)], [(3, 4)]]).slice(1)

    assert picked(batch, [Record(0, 7), Record(1, 3)], has_ends=True) == ["1.1", "2.0"]


def test_lists_of_other_lengths_are_refused() -> None:
    """A peer whose lists do not fit together is not believed."""
    batch = lists([[(0, 1)]])
    longer = batch.set_column(0, "name", pa.array([["a", "b"]]))
    null = batch.set_column(1, "valid_from", pa.array([None], pa.list_(TIME)))

    for each, why in ((longer, "equally long"), (null, "is null")):
        with pytest.raises(ProtocolViolation, match=why):
            picked(each, [Record(0, 0)], has_ends=True)

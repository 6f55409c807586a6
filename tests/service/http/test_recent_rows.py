"""Rows that were hits are found again by what asked for them, while they are the answer."""

import pytest

from lookup_core.answer import Outcome
from lookup_core.statistics import InvalidationOrigin
from service.engine.dimension import Dimension
from service.http.replies.row_texts import MOST_BYTES, RecentRows
from tests.service.http.serving import Served

TEXT = b'{"name":"Ada","tier":1}'


async def customers(service: Served) -> Dimension:
    """The dimension, with the rows 1 to 3 cached."""
    await service.lookup('{"keys": [1, 2, 3]}')
    return service.parts.dimensions["customers"]


def kept(dimension: Dimension, recent: RecentRows, *questions: str, text: bytes = TEXT) -> None:
    """Hit row 1 for each question, and keep it."""
    for question in questions:
        hit = dimension.hit(1)
        assert hit is not None
        recent.keep(question, dimension, hit, text=text)


def found(recent: RecentRows, *questions: str) -> list[bytes | None]:
    """The text for each question."""
    rows = map(recent.find, questions)
    return [None if row is None else row.text for row in rows]


async def test_row_is_found_by_its_question(service: Served) -> None:
    """It is a hit like any other, with the age that it has now; others are not found."""
    dimension, recent = await customers(service), RecentRows()
    kept(dimension, recent, "/1")

    row = recent.find("/1")

    assert row is not None
    assert (row.text, row.age_ms) == (TEXT, int(row.age_s * 1000))
    assert recent.find("/2") is None
    assert dimension.statistics().outcomes[Outcome.HIT] == 2


async def test_row_that_went_is_not_found(service: Served) -> None:
    """What the dimension has forgotten is not known here either."""
    dimension, recent = await customers(service), RecentRows()
    kept(dimension, recent, "/1")

    dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)

    assert recent.find("/1") is None


async def test_first_row_goes_first(service: Served) -> None:
    """Of more rows than there may be the oldest go; one that is kept anew is the youngest."""
    dimension, recent = await customers(service), RecentRows(most_rows=2)

    kept(dimension, recent, "/1", "/2", "/1", "/3")

    assert found(recent, "/1", "/2", "/3") == [TEXT, None, TEXT]


@pytest.mark.parametrize(
    ("question", "text"), [("/1", b"x" * (MOST_BYTES + 1)), ("/" * (MOST_BYTES + 1), TEXT)]
)
async def test_large_rows_are_not_kept(service: Served, question: str, text: bytes) -> None:
    """So that all together take a known number of bytes at the most."""
    dimension, recent = await customers(service), RecentRows()

    kept(dimension, recent, question, text=text)

    assert recent.find(question) is None

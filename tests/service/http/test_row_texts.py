"""A cached row is written at once; all else is left to a lookup."""

from lookup_core.answer import Outcome
from lookup_core.statistics import InvalidationOrigin
from service.http.replies.row_texts import RowTexts
from tests.service.http.serving import Served

ADA = b'{"name":"Ada","tier":1}'


async def test_cached_row_is_written(service: Served) -> None:
    """Once it was looked up, the row of a key is there; one that is missing is not."""
    dimension = service.parts.dimensions["customers"]
    assert RowTexts().find(dimension, 1) is None

    await service.lookup('{"keys": [1, 9]}')
    found = RowTexts().find(dimension, 1)

    assert found is not None
    assert found.text == ADA
    assert RowTexts().find(dimension, 9) is None


async def test_row_is_found_again_by_its_question(service: Served) -> None:
    """The same question is answered again without the key's being looked for."""
    dimension, texts = service.parts.dimensions["customers"], RowTexts()
    await service.lookup('{"keys": [1]}')

    before = texts.again("/1")
    found = texts.find(dimension, 1, question="/1")
    again = texts.again("/1")

    assert before is None
    assert found is not None
    assert again is not None
    assert (again.text, again.age_s >= found.age_s) == (found.text, True)
    assert dimension.statistics().outcomes[Outcome.HIT] == 2


async def test_later_row_is_written_anew(service: Served) -> None:
    """After a row was forgotten and fetched again, its question leads to the later one."""
    dimension, texts = service.parts.dimensions["customers"], RowTexts()
    await service.lookup('{"keys": [1]}')
    texts.find(dimension, 1, question="/1")
    dimension.invalidate(None, origin=InvalidationOrigin.ADMIN)
    await service.lookup('{"keys": [2, 1]}')

    assert texts.again("/1") is None
    texts.find(dimension, 1, question="/1")
    again = texts.again("/1")

    assert again is not None
    assert again.text == ADA

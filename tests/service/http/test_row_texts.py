"""A cached row is written at once; all else is left to a lookup."""

import pytest

from lookup_core.errors import ErrorCode, InvalidRequest
from service.http.answer_room import AnswerHold, AnswerRoom
from service.http.row_texts import RowTexts
from tests.service.http.serving import Served

ADA = b'{"name":"Ada","tier":1}'


async def test_cached_row_is_written(service: Served) -> None:
    """Once it was looked up, the row of a key is there, and its text is held."""
    dimension, room = service.parts.dimensions["customers"], AnswerRoom()
    assert RowTexts().find(dimension, 1, AnswerHold(room)) is None

    await service.lookup('{"keys": [1, 9]}')
    found = RowTexts().find(dimension, 1, AnswerHold(room))

    assert found is not None
    assert (found.text, room.used_bytes) == (ADA, len(ADA))
    assert RowTexts().find(dimension, 9, AnswerHold(room)) is None


async def test_row_without_room_is_refused(service: Served) -> None:
    """A row that is larger than all answers may be is an answer that is too large."""
    await service.lookup('{"keys": [1]}')

    with pytest.raises(InvalidRequest) as caught:
        RowTexts().find(service.parts.dimensions["customers"], 1, AnswerHold(AnswerRoom(10)))

    assert caught.value.code is ErrorCode.ANSWER_TOO_LARGE

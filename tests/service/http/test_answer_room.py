"""What answers of plain requests may hold, and who is refused when it is too much."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, InvalidRequest, Overloaded
from service.connectors.memory.backend import FakeBackend
from service.http.application import ServiceParts
from service.http.limits import AnswerByteBudget, AnswerReservation
from tests.service.http.serving import CUSTOMERS, Setting, served

BIG = "x" * 1000


def answer(keys: int) -> Answer:
    """Rows of 1,000 bytes for so many keys; a little more with what stands beside them."""
    rows = pa.record_batch([pa.array([BIG] * keys)], names=["name"])
    outcomes = np.full(keys, Outcome.HIT, np.uint8)
    positions = np.arange(keys, dtype=np.int32)
    return Answer(positions, outcomes, np.zeros(keys, np.uint32), rows)


def test_answers_are_counted_as_they_come() -> None:
    """What a request has taken so far is what all its answers have."""
    room = AnswerByteBudget(10_000)
    hold = AnswerReservation(room)

    hold.take(answer(3))
    hold.take(answer(4))

    assert room.used_bytes == answer(3).total_bytes + answer(4).total_bytes


def test_too_large_answer_tells_what_fits() -> None:
    """A request that alone is too large must ask for less, and learns for how much."""
    hold = AnswerReservation(AnswerByteBudget(10_000))
    hold.take(answer(8))

    with pytest.raises(InvalidRequest) as caught:
        hold.take(answer(8))

    assert caught.value.code is ErrorCode.ANSWER_TOO_LARGE
    assert "more than 10000 bytes" in caught.value.detail
    assert "ask for at most 9 keys at once" in caught.value.detail


def test_too_large_row_needs_more_memory() -> None:
    """Where not even one key would fit, asking for less is of no use."""
    hold = AnswerReservation(AnswerByteBudget(500))

    with pytest.raises(InvalidRequest) as caught:
        hold.take(answer(1))

    assert caught.value.detail.endswith("raise limits.memory")


def test_room_of_others_makes_one_wait() -> None:
    """A request that would fit alone is told to come again, and nothing of it is kept."""
    room = AnswerByteBudget(10_000)
    AnswerReservation(room).take(answer(8))
    used_bytes = room.used_bytes

    with pytest.raises(Overloaded) as caught:
        AnswerReservation(room).take(answer(8))

    assert (caught.value.code, caught.value.retry_after_s) == (ErrorCode.OVERLOADED, 1.0)
    assert room.used_bytes == used_bytes


def test_hold_follows_the_response() -> None:
    """Once the response is made its own size counts, and nothing when it was sent."""
    room = AnswerByteBudget(10_000)
    hold = AnswerReservation(room)
    hold.take(answer(3))

    hold.only(20_000)
    sending_bytes = room.used_bytes
    hold.only(0)

    assert (sending_bytes, room.used_bytes) == (20_000, 0)


async def test_large_answers_are_refused() -> None:
    """Over HTTP it is 413 with a code of its own, and the room is free again."""
    async with served(_with_room(40)) as service:
        response = await service.lookup('{"keys": [1, 2, 3]}')
        used_bytes = service.parts.answer_budget.used_bytes
        small = await service.lookup('{"keys": [1], "columns": ["name"]}')

    assert (response.status, (await response.json())["code"]) == (413, "answer_too_large")
    assert (used_bytes, small.status) == (0, 200)


async def test_cached_rows_are_counted_in_parts() -> None:
    """The same key many times is refused before all its rows were copied."""
    async with served(_with_room(5_000)) as service:
        await service.lookup('{"keys": [1]}')
        response = await service.lookup(f'{{"keys": {[1] * 90_000}}}')

    detail = (await response.json())["detail"]
    assert (response.status, response.headers["Connection"]) == (413, "close")
    assert "ask for at most" in detail


async def test_single_row_may_be_too_large() -> None:
    """The same bound holds for one key in the path."""
    path = "/v1/dimensions/customers/rows/1"
    async with served(_with_room(5)) as service, service.unix.get(path) as response:
        assert (response.status, (await response.json())["code"]) == (413, "answer_too_large")


def _with_room(total_bytes: int) -> Setting:
    def change(parts: ServiceParts) -> ServiceParts:
        return replace(parts, answer_budget=AnswerByteBudget(total_bytes))

    return Setting(change_parts=change)


def test_written_rows_are_counted_by_their_text() -> None:
    """A row that is written already takes what its text has, instead of what it had before."""
    room = AnswerByteBudget(1_000)
    hold = AnswerReservation(room)
    hold.take_text(b"x" * 500)

    hold.take_text(b"x" * 600)

    assert room.used_bytes == 600
    with pytest.raises(Overloaded):
        AnswerReservation(room).take_text(b"x" * 600)
    with pytest.raises(InvalidRequest):
        hold.take_text(b"x" * 1_001)


@pytest.mark.parametrize(("room_bytes", "status"), [(180, 413), (400, 200)])
async def test_one_row_is_refused_or_not_cached_or_not(room_bytes: int, status: int) -> None:
    """A row whose text is too large is refused when it was fetched as when it was found."""
    statuses = []
    async with served(replace(_with_room(room_bytes), prepare=_lengthen)) as service:
        for _ in range(3):
            async with service.unix.get("/v1/dimensions/customers/rows/1") as response:
                statuses.append(response.status)
        statuses += [(await service.lookup(f'{{"keys": [{key}]}}')).status for key in (1, 2, 2)]

    assert statuses == [status] * 6
    assert service.parts.answer_budget.used_bytes == 0


def _lengthen(backends: Mapping[str, FakeBackend]) -> None:
    # Each character has one byte in Arrow, and two in JSON.
    rows = CUSTOMERS.set_column(1, "name", pa.array(["\n" * 100] * 3))
    schema = DimensionSchema(rows.select(["id"]).schema, rows.select(["name", "tier"]).schema)
    backends["customers"].replace(rows, schema)

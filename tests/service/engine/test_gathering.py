"""The answers of one lookup are gathered part by part, and whoever counts them may end it."""

import asyncio

import numpy as np
import pyarrow as pa
import pytest

from lookup_core.answer import Answer, Outcome, rowless_answer
from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode, Overloaded
from service.engine.gathering import AnswerGathering
from tests.service.engine.running import SCHEMA, customers, running, settings, told, typed

BIG = DimensionSchema(SCHEMA.key, pa.schema({"name": pa.utf8()}))
BIG_ROWS = pa.table({"id": pa.array([7], pa.int64()), "name": ["x" * 100_000]})
TOO_MUCH = Overloaded(ErrorCode.OVERLOADED, "too much", retry_after_s=1.0)


def refuse(_answer: Answer) -> None:
    """Let nothing in."""
    raise TOO_MUCH


async def sizes(keys: int) -> list[tuple[int, int]]:
    """Where the parts of so many keys start, and how many they have."""
    gathering = AnswerGathering(typed(*range(keys)), lambda _: None)
    return [(start, part.size) for start, part in gathering.parts()]


async def test_parts_grow_while_nothing_is_known() -> None:
    """Each is twice as large as the one before, and together they are all keys."""
    assert await sizes(500) == [(0, 16), (16, 32), (48, 64), (112, 128), (240, 256), (496, 4)]


async def test_lookup_without_keys_has_a_part() -> None:
    """Nothing is asked, too, and checked as everything else."""
    assert await sizes(0) == [(0, 0)]


async def test_all_parts_are_answered_in_place() -> None:
    """Positions are those of the whole lookup, NULL keys included."""
    keys = [7, None, 9] * 50
    async with running(customers(), settings()) as dimension:
        answers = told(await dimension.lookup(typed(*keys), columns=None, timeout_s=None))

    words = {7: "fetched Ada", None: "missing", 9: "missing"}
    assert answers == {at: words[key] for at, key in enumerate(keys)}


async def test_rows_make_parts_smaller() -> None:
    """The larger the rows that came already, the fewer keys are asked for at once."""
    store = customers()
    store.replace(BIG_ROWS, BIG)
    async with running(store, settings()) as dimension:
        await dimension.lookup(typed(7), columns=None, timeout_s=None)
        taken: list[int] = []
        await dimension.lookup(
            typed(*[7] * 200),
            columns=None,
            timeout_s=None,
            take=lambda each: taken.append(each.size),
        )

    assert taken == [41, 41, 41, 41, 36]


async def test_small_rows_make_first_parts_larger() -> None:
    """A hundred keys of a dimension whose rows are known to be small are asked for at once."""
    taken: list[int] = []
    async with running(customers(), settings()) as dimension:
        for _ in range(2):
            taken.clear()
            await dimension.lookup(
                typed(*[7] * 150),
                columns=None,
                timeout_s=None,
                take=lambda each: taken.append(each.size),
            )

    assert taken == [128, 22]


async def test_refused_fetch_leaves_its_parts() -> None:
    """What `take` raises for an answer that comes later ends the lookup, and its keys are left."""
    store = customers()
    store.hold()
    async with running(store, settings()) as dimension:
        asking = asyncio.ensure_future(
            dimension.lookup(typed(*range(100)), columns=None, timeout_s=None, take=refuse)
        )
        await store.wait_for_fetches(1)
        store.release()
        with pytest.raises(Overloaded) as caught:
            await asking

        assert (caught.value, dimension.is_waited_for) == (TOO_MUCH, False)


async def test_refused_hit_asks_no_further() -> None:
    """What `take` raises for an answer from the cache ends the lookup before the next part."""
    store = customers()
    async with running(store, settings()) as dimension:
        await dimension.lookup(typed(7), columns=None, timeout_s=None)
        with pytest.raises(Overloaded):
            await dimension.lookup(typed(*[7] * 64, 8), columns=None, timeout_s=None, take=refuse)

        assert (len(store.batches), dimension.is_waited_for) == (1, False)


async def test_answers_after_the_end_are_ignored() -> None:
    """A lookup that was refused may still be delivered to before it is left."""
    gathering = AnswerGathering(typed(7, 8), refuse)
    answer = rowless_answer(np.array([0], np.int32), Outcome.MISSING)

    for is_last in (False, True):
        gathering.delivery(0)(answer, is_last)

    with pytest.raises(Overloaded):
        await gathering.end()
    assert gathering.answers == []

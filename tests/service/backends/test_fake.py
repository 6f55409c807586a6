"""The fake keeps the contract, keeps a diary, and fails when and how it is told to."""

import asyncio

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import BackendError, ErrorCode
from service.connectors.memory.backend import FakeBackend
from tests.service.backends.backend_contract import (
    AIRPORTS,
    TIMEOUT_S,
    BackendContract,
    OpenBackend,
)

DOWN = BackendError(ErrorCode.BACKEND_UNAVAILABLE, "airports: down")
JFK = pa.record_batch({"code": ["JFK"]})
EWR = pa.record_batch({"code": ["EWR"]})


class TestFakeBackend(BackendContract):
    """The contract, over rows in memory."""

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """A fake with the rows."""
        return lambda rows, key: fake_of(rows, *key)


def fake_of(rows: pa.Table, *key: str) -> FakeBackend:
    """A fake that offers all columns but the key."""
    fields = {name: rows.schema.field(name).type for name in rows.column_names}
    columns = {name: kind for name, kind in fields.items() if name not in key}
    schema = DimensionSchema(pa.schema({name: fields[name] for name in key}), pa.schema(columns))
    return FakeBackend(rows, schema)


async def test_diary_holds_every_batch() -> None:
    """The keys of each fetch are kept in the order of the calls, failed ones included."""
    fake = fake_of(AIRPORTS, "code")
    fake.fail_next(1, DOWN)

    with pytest.raises(BackendError):
        await fake.fetch(JFK, timeout_s=TIMEOUT_S)
    await fake.fetch(EWR, timeout_s=TIMEOUT_S)

    assert fake.batches == [JFK, EWR]


async def test_next_fetches_fail_as_told() -> None:
    """Exactly the number of fetches that was told fails, with the very error."""
    fake = fake_of(AIRPORTS, "code")
    fake.fail_next(2, DOWN)

    fetches = [fake.fetch(JFK, timeout_s=TIMEOUT_S) for _ in range(3)]
    results = await asyncio.gather(*fetches, return_exceptions=True)

    assert results[:2] == [DOWN, DOWN]
    assert not isinstance(results[2], BaseException)


async def test_held_fetches_wait_for_release() -> None:
    """A held fetch has arrived and is not answered; after the release it is."""
    fake = fake_of(AIRPORTS, "code")
    fake.hold()

    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        task = group.create_task(fake.fetch(JFK, timeout_s=TIMEOUT_S))
        await fake.wait_for_fetches(1)
        was_done = task.done()
        fake.release()

    assert not was_done
    assert task.result().ordinals.tolist() == [0]


async def test_held_fetch_ends_at_its_timeout() -> None:
    """The timeout of a fetch holds while it is held, too."""
    fake = fake_of(AIRPORTS, "code")
    fake.hold()

    with pytest.raises(BackendError) as caught:
        await fake.fetch(JFK, timeout_s=0.001)

    assert caught.value.code is ErrorCode.TIMEOUT


async def test_cancelled_fetches_are_counted() -> None:
    """A fetch that is cancelled while it is held shows in the count."""
    fake = fake_of(AIRPORTS, "code")
    fake.hold()
    task = asyncio.ensure_future(fake.fetch(JFK, timeout_s=TIMEOUT_S))
    await fake.wait_for_fetches(1)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert fake.cancelled_total == 1


async def test_describes_itself_only_when_allowed() -> None:
    """While an error is set, describing raises it; later it answers."""
    fake = fake_of(AIRPORTS, "code")
    fake.describe_error = DOWN

    with pytest.raises(BackendError) as caught:
        await fake.describe(timeout_s=TIMEOUT_S)
    fake.describe_error = None

    assert caught.value is DOWN
    assert (await fake.describe(timeout_s=TIMEOUT_S)).key.names == ["code"]


async def test_replaced_rows_are_to_be_described() -> None:
    """As in a table that was changed: fetches fail until it is described anew."""
    fake = fake_of(AIRPORTS, "code")
    numbers = pa.table({"code": ["JFK"], "runways": [4]})
    schema = DimensionSchema(pa.schema({"code": pa.utf8()}), pa.schema({"runways": pa.int64()}))
    fake.replace(numbers, schema)

    with pytest.raises(BackendError) as caught:
        await fake.fetch(JFK, timeout_s=TIMEOUT_S)
    assert caught.value.code is ErrorCode.SCHEMA_CHANGED
    assert await fake.describe(timeout_s=TIMEOUT_S) is schema
    assert (await fake.fetch(JFK, timeout_s=TIMEOUT_S)).rows["runways"].to_pylist() == [4]


async def test_questions_besides_fetches_are_awaited() -> None:
    """Whoever tests an engine sees that it asked for a description and for a sign of life."""
    fake = fake_of(AIRPORTS, "code")
    fake.describe_error = fake.probe_error = DOWN
    waiting = asyncio.gather(fake.wait_for_descriptions(1), fake.wait_for_probes(1))

    asked = asyncio.gather(
        fake.describe(timeout_s=TIMEOUT_S), fake.probe(timeout_s=TIMEOUT_S), return_exceptions=True
    )

    assert list(await asked) == [DOWN, DOWN]
    await asyncio.wait_for(waiting, TIMEOUT_S)


async def test_equal_keys_give_all_rows() -> None:
    """Two rows with one key are both found: the engine decides what that means."""
    fake = fake_of(pa.table({"k": [1, 2, 1], "v": ["a", "b", "c"]}), "k")

    fetched = await fake.fetch(pa.record_batch({"k": [2, 1]}), timeout_s=TIMEOUT_S)

    assert fetched.ordinals.tolist() == [0, 1, 1]
    assert fetched.rows["v"].to_pylist() == ["b", "a", "c"]

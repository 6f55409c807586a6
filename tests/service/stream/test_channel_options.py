"""Options of a channel in OPEN: a maximal age, and its own retries for missing keys."""

from dataclasses import replace

import pyarrow as pa
import pytest

from lookup_core.dimension_schema import DimensionSchema
from lookup_core.errors import ErrorCode
from lookup_core.lookup_options import LookupOptions
from lookup_core.protocol import frames
from tests.service.connectors.fake_backend import FakeBackend
from tests.service.engine.running import ROWS, SCHEMA
from tests.service.stream.streaming import (
    Peer,
    credit_of,
    open_frame,
    streaming,
)

READ_NOW = LookupOptions(max_age_ms=0)
PATIENT = LookupOptions(max_retries=100, retry_delay_ms=20)
NAMED = replace(PATIENT, retry_if="tier")


def put(backend: FakeBackend, keys: list[int], tiers: list[int | None]) -> None:
    """Let the table have these rows; its columns stay as they are."""
    rows = pa.table(
        [keys, [f"name {key}" for key in keys], tiers], schema=ROWS.schema.remove_metadata()
    )
    backend._put(rows, backend._schema)


async def answer(peer: Peer, channel: int, sequence: int, key: int) -> dict[int, str]:
    """The answer to one key on a channel."""
    return await peer.answer(await peer.look_up(sequence, key, channel=channel))


@pytest.mark.parametrize("options", [READ_NOW, PATIENT, NAMED])
async def test_opened_repeats_kept_options(options: LookupOptions) -> None:
    """OPENED has the options of OPEN, so that a client knows that the service keeps them."""
    async with streaming() as service:
        peer = await service.greeted()

        assert (await peer.open(options=options)).options == options
        assert (await peer.open(2)).options == LookupOptions()


@pytest.mark.parametrize(
    ("options", "code", "detail"),
    [
        (replace(PATIENT, max_retries=101), ErrorCode.BAD_REQUEST, "retry_missing.max_retries is"),
        (LookupOptions(retry_if="tier"), ErrorCode.BAD_REQUEST, "there are no retries"),
        (replace(NAMED, retry_if="tie"), ErrorCode.UNKNOWN_COLUMN, "did you mean tier?"),
    ],
)
async def test_impossible_options_are_refused(
    options: LookupOptions, code: ErrorCode, detail: str
) -> None:
    """Options that the dimension cannot keep are refused with ERROR, which is not retryable."""
    async with streaming() as service:
        peer = await service.greeted()
        await peer.send(open_frame(options=options))

        failure = await peer.receive(frames.Failure)
        assert (failure.code, failure.is_retryable) == (code, False)
        assert detail in failure.detail


async def test_maximal_age_refreshes_the_shared_cache() -> None:
    """A channel with a maximal age reads a cached key again, and others get the new row."""
    async with streaming() as service:
        peer = await service.peer()
        await peer.open(2, options=READ_NOW)
        put(service.customers, [7], [1])
        assert await answer(peer, 1, 1, 7) == {0: "fetched name 7"}
        put(service.customers, [], [])

        assert await answer(peer, 1, 2, 7) == {0: "hit name 7"}
        assert await answer(peer, 2, 1, 7) == {0: "missing"}
        assert await answer(peer, 1, 3, 7) == {0: "missing"}
        assert len(service.customers.batches) == 2


async def test_channel_waits_for_a_value() -> None:
    """With `retry_if`, a row with NULL is read again, also if the column is not requested."""
    async with streaming() as service:
        put(service.customers, [9], [None])
        peer = await service.peer()
        await peer.open(2, columns=("name",), options=NAMED)
        waiting = await peer.look_up(1, 9, channel=2)
        await peer.open(3, columns=("name",))
        assert await answer(peer, 3, 1, 9) in ({0: "fetched name 9"}, {0: "hit name 9"})

        put(service.customers, [9], [1])
        assert await peer.receive(frames.Credit) == credit_of(waiting)
        result, words = await peer.result()
        assert (result.channel, words) == (2, {0: "fetched name 9"})


async def test_lost_column_ends_its_retries() -> None:
    """If the column of `retry_if` is dropped, the channel's lookups fail: open it again."""
    async with streaming() as service:
        peer = await service.greeted()
        await peer.open(columns=("name",), options=NAMED)
        columns = pa.schema([SCHEMA.columns.field("name")])
        service.customers.replace(ROWS, DimensionSchema(SCHEMA.key, columns))

        changed = {0: "error schema_changed"}
        assert await peer.answers(7, 7) == [changed, changed]
